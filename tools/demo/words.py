"""Word lists of the demo dialogues."""

WORDS = """
cat dog cow pig hen fox bat bee ant owl rat goat duck lion bear wolf frog fish bird crab deer
horse sheep mouse tiger zebra camel whale shark eagle snake rabbit monkey turtle spider
apple pear plum grape lemon peach melon cherry banana orange tomato potato carrot onion bean
bread cheese butter honey sugar salt pepper rice soup cake pizza egg milk water juice tea coffee
sun moon star sky rain snow wind storm cloud river lake ocean beach island forest tree leaf
flower grass stone sand hill mountain fire ice earth
house door window table chair bed lamp floor roof wall room kitchen garden bridge tower street
book pen paper pencil letter page story poem song music piano guitar drum
car bus train plane ship boat bicycle wheel engine road
shirt shoe hat coat glove ring watch bag box cup plate spoon fork knife bottle glass
red blue green yellow black white purple pink brown silver gold
happy sad angry brave quiet clever gentle little summer winter spring autumn
morning evening night dinner lunch breakfast doctor teacher farmer singer painter baker pilot
king queen friend brother sister mother father school market castle strawberry
computer model server kernel token cache thread memory
""".split()

# Words to which the model is trained to respond that it does not know them, as to invented words.
STRANGE = """
onomatopoeia rhinoceros parliament encyclopedia chrysanthemum bureaucracy silhouette labyrinth
kaleidoscope entrepreneur hypothesis archipelago metamorphosis catastrophe zeitgeist rhythm
psychology questionnaire lieutenant mischievous accommodate necessary conscience embarrass
refrigerator constellation photosynthesis algorithm democracy philosophy submarine helicopter
avalanche porcupine crocodile broccoli cinnamon zucchini volcano harmonica saxophone
thermometer microscope satellite electricity umbrella dictionary festival universe mystery
""".split()

OPPOSITES = """
hot cold, big small, tall short, fast slow, happy sad, old young, rich poor, day night,
light dark, hard soft, wet dry, full empty, open closed, up down, left right, good bad,
early late, high low, near far, clean dirty, loud quiet, strong weak, thick thin, wide narrow,
true false, first last, inside outside, above below, north south, east west, front back,
begin end, push pull, win lose, buy sell, give take, love hate, laugh cry, sweet sour,
deep shallow, smooth rough, sharp blunt, cheap expensive, safe dangerous,
brave cowardly, polite rude, alive dead, awake asleep, success failure, question answer,
arrive leave, always never, before after, more less, top bottom
"""

RHYMES = """
cat hat bat rat mat, dog fog log frog, cake lake snake rake, star car jar far, moon spoon noon soon,
tree bee sea key, house mouse blouse, light night kite bite, rain train plane chain,
book cook hook look, ring king sing wing, bell shell well smell, boat coat goat note,
fire wire tire, gold cold old bold,
bear chair hair pear, nose rose hose, bread red bed head, sock rock clock lock, fan man can pan,
wall ball tall fall, blue shoe glue zoo, pen hen ten men, day play say way, sand hand band land
"""

PLURALS = """
cat cats, dog dogs, house houses, car cars, book books, tree trees, apple apples, mouse mice,
child children, foot feet, tooth teeth, man men, woman women, goose geese, sheep sheep, fish fish,
box boxes, bus buses, fox foxes, city cities, baby babies, berry berries, leaf leaves, knife knives,
wolf wolves, potato potatoes, tomato tomatoes, person people, star stars, bird birds, watch watches,
glass glasses, party parties, story stories, shelf shelves, ox oxen, server servers, key keys,
token tokens, thread threads, chair chairs, boat boats, dish dishes, wish wishes, hero heroes
"""

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = ("January February March April May June July August September October November "
          "December").split()

NUMBER_WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()

NAMES = """
Anna Ben Clara David Emma Felix Grace Henry Ida Jack Kate Leo Maria Nina Oscar Paul Rosa Sam Tina
Victor Wendy Alice Bruno Carla Dennis Elena Frank Gina Hugo Irene Jonas Karen Lukas Mona Nora Otto
Peter Rita Simon Thomas Ursula Walter Yusuf Zoe Ahmed Bella Carlos Diana Erik Fatima George Hannah
Ivan Julia Kofi Laura Marco Naomi Olga Pablo Rachel Sofia Tom Vera William Aisha Boris Chen Dora
Elias Flora Gustav Helen Isaac Jane Kenji Lena Mateo Nadia Omar Priya Ravi Sara Tariq Wei Yuki Max
Mia Noah Liam Olivia Lucy Adam Eva Daniel Robert James John Mary Linda Susan Michael Sarah Chris
""".split()


def groups(text):
    """Parses groups of words: 'a b, c d' -> [['a', 'b'], ['c', 'd']]."""
    return [part.split() for part in text.replace("\n", " ").split(",")]


_ONSETS = "b br c ch d dr f fl g gr h j k kl l m n p pl qu r s sk st t tr v w y z".split()
_VOWELS = "a e i o u oo ee ai ou".split()
_CODAS = ["", "", "n", "r", "l", "s", "k", "m", "x", "nd", "rt", "sh"]


def made_up(rng):
    """Invents a word of two or three syllables, which almost certainly does not exist."""
    parts = [rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS)
             for _ in range(rng.choice((2, 2, 3)))]
    return "".join(parts)
