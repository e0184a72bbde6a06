"""Tool actions ("deeds"), from which tools.py generates tools and requests.

A deed has verbs for the tool's name, descriptions, parameters (slot: kind of value), patterns of
requests, and the pattern of the response to the tool's result. {noun} is the object of the tool.
"""

from dataclasses import dataclass, field

import nouns


@dataclass(frozen=True)
class Deed:
    verbs: str
    nouns: str
    about: str
    roles: dict
    requests: list
    answer: str  # pattern of the response to a successful result
    special: dict = field(default_factory=dict)  # noun: additional request patterns


GET = "[get|fetch|find|check|look up|show|show me|tell me|give me|I need|please find]"
WANT = "[please |can you |could you |I want to |I would like to |I need to |help me to ||||]"
WHAT = "[what is|what's|what is|tell me|do you know|can you tell me]"


DEEDS = {
    "of place": Deed(
        "get fetch find check lookup query show read",
        nouns.OF_PLACE,
        "[Get|Returns|Look up|Find|Gives|Fetch] the [|current ]{noun} [in|of|for] a "
        "[city|place|town|location].",
        {"place": "place"},
        [
            WHAT + " the {noun} [in|for|of] {place}",
            GET + " the {noun} [in|for|of] {place}",
            "[the |]{noun} [in|of] {place}",
            "I [would like|want|need] to know the {noun} [in|of] {place}",
            "how is the {noun} in {place} [|today|now]",
            "I am in {place}, what is the {noun} [|here]",
            "I [travel|go|am going|am flying] to {place}, what is the {noun} there",
            "what about the {noun} in {place}",
        ],
        "The {noun} in {place} is {result}.",
        {
            "weather": [
                "what is the weather like in {place}",
                "how is the weather in {place}",
                "[what's|what is] the weather in {place} [|today|now|right now|like today]",
                "will it [rain|snow|be sunny] in {place}",
                "is it [cold|warm|hot|raining|sunny] in {place}",
                "do I need an umbrella in {place}",
            ],
            "local time": ["what time is it in {place}", "how late is it in {place}"],
            "population": ["how many people live in {place}"],
            "temperature": ["how [warm|cold|hot] is it in {place}"],
            "mayor": ["who is the mayor of {place}"],
        },
    ),
    "of thing": Deed(
        "get fetch find check lookup query show read",
        nouns.OF_THING,
        "[Get|Returns|Look up|Find|Gives|Fetch] the {noun} of [an item|a thing|a product].",
        {"thing": "thing"},
        [
            WHAT + " the {noun} [of|for] {thing}",
            GET + " the {noun} [of|for] {thing}",
            "[the |]{noun} of {thing}",
            "I [would like|want|need] to know the {noun} of {thing}",
            "I have {thing}, what is the {noun}",
            "which {noun} does {thing} have",
            "what {noun} has {thing}",
        ],
        "The {noun} of {thing} is {result}.",
        {
            "price": ["how much is {thing}", "what does {thing} cost"],
            "weight": ["how heavy is {thing}"],
            "age": ["how old is {thing}"],
            "definition": ["define {thing}"],
            "meaning": ["what does {thing} mean"],
            "recipe": ["how do I cook {thing}"],
        },
    ),
    "of person": Deed(
        "get fetch find check lookup query show read",
        nouns.OF_PERSON,
        "[Get|Returns|Look up|Find|Gives|Fetch] the {noun} of a [person|user|customer|colleague].",
        {"person": "person"},
        [
            WHAT + " the {noun} of {person}",
            WHAT + " {person}'s {noun}",
            GET + " the {noun} of {person}",
            GET + " {person}'s {noun}",
            "[the |]{noun} of {person}",
            "which {noun} does {person} have",
            "I [talk|spoke|met|work] with {person}, what is the {noun}",
        ],
        "The {noun} of {person} is {result}.",
    ),
    "by code": Deed(
        "track get check find status_of lookup trace",
        nouns.BY_CODE,
        "[Look up|Get|Track|Find|Check] [the status of |]a[|n] {noun} by its [number|code|id].",
        {"code": "code"},
        [
            "where is [|my |the ]{noun} {code}",
            "what is the status of [|my |the ]{noun} {code}",
            "[track|check|find|look up|show me] [|my |the ]{noun} [|number ]{code}",
            "what happened to [|my |the ]{noun} {code}",
            "my {noun} number is {code}, where is it",
            "any news about {noun} {code}",
            "is {noun} {code} [done|late|here|ready]",
        ],
        "Status of {noun} {code}: {result}.",
    ),
    "send": Deed(
        "send write post deliver submit",
        nouns.TO_SEND,
        "[Send|Write|Deliver] a[|n] {noun} to [a person|somebody|a contact|a user].",
        {"person": "to", "text": "text"},
        [
            WANT + "[send|write] a[|n] {noun} to {person} [saying|that says|with the text]: {text}",
            WANT + "[send|write] {person} a[|n] {noun}: {text}",
            WANT + "tell {person} by {noun}: {text}",
            "[send|write] a[|n] {noun} to {person}: {text}",
            'send the {noun} "{text}" to {person}',
            'tell {person} "{text}" [by|with a|in a] {noun}',
        ],
        "The {noun} to {person}: {result}.",
    ),
    "set": Deed(
        "set change adjust configure update",
        nouns.TO_SET,
        "[Set|Change|Adjust] the {noun} to a [value|number|level].",
        {"value": "value"},
        [
            WANT + "[set|change|adjust|turn|put] the {noun} to {value}",
            "{noun} to {value}",
            "[the |]{noun} should be {value}",
            "I want the {noun} at {value}",
            "make the {noun} {value}",
        ],
        "The {noun}: {result}.",
    ),
    "mode": Deed(
        "set change switch select configure",
        nouns.WITH_MODE,
        "[Set|Choose|Change] the mode of the {noun}.",
        {"mode": "mode"},
        [
            WANT + "[set|switch|put|change] the {noun} to {mode}",
            WANT + "[set|switch|put|change] the {noun} [to|into] {mode} mode",
            "the {noun} should be in {mode} mode",
            "use {mode} mode for the {noun}",
        ],
        "The {noun}: {result}.",
    ),
    "switch": Deed(
        "switch turn toggle control set",
        nouns.TO_SWITCH,
        "[Turn|Switch] the {noun} in a room on or off.",
        {"room": "room", "on": "on"},
        [
            WANT + "[turn|switch] {on} the {noun} in the {room}",
            WANT + "[turn|switch] the {noun} in the {room} {on}",
            "{noun} in the {room} {on}",
            "the {noun} in the {room} should be {on}",
        ],
        "The {noun} in the {room}: {result}.",
    ),
    "order": Deed(
        "order buy purchase get request",
        nouns.TO_ORDER,
        "[Order|Buy] {noun}[| for the user| online].",
        {"thing": "item", "count": "count"},
        [
            WANT + "[order|buy|get] {count} {thing} [from|with|through] [|the ]{noun} [shop|store]",
            "{noun}: {count} times {thing} please",
            "for [|the ]{noun}, [order|buy] {count} of {thing}",
            WANT + "[order|buy] {noun}: {count} {thing}",
        ],
        "Order of {count} {thing}: {result}.",
    ),
    "book": Deed(
        "book reserve schedule arrange make",
        nouns.TO_BOOK,
        "[Book|Reserve|Arrange] a[|n] {noun}[| for the user].",
        {"place": "place", "date": "date"},
        [
            WANT + "[book|reserve|get|find] a[|n] {noun} in {place} [for|on] {date}",
            WANT + "[book|reserve] a[|n] {noun} [for|on] {date} in {place}",
            "I need a[|n] {noun} in {place}, {date}",
            "on {date} I am in {place}, [book|reserve] a[|n] {noun}",
        ],
        "The {noun} in {place}: {result}.",
    ),
    "search": Deed(
        "search find query lookup browse",
        nouns.TO_SEARCH,
        "[Search|Search in|Find|Look for] {noun}[| by words| for a query].",
        {"query": "query"},
        [
            WANT + "[search|find|look for|look up] {noun} about {query}",
            "search {noun} for {query}",
            "[are there|do you have|show me|I want|I am looking for] {noun} [about|on] {query}",
            "which {noun} are [about|on] {query}",
            "look in {noun} for {query}",
        ],
        "I found {result}.",
    ),
    "list": Deed(
        "list get show all read",
        nouns.TO_LIST,
        "[List|Show|Returns|Get] all [|the ]{noun}[| of the user].",
        {},
        [
            "[list|show|show me|give me|get|read] [|all |my |the |all my |all the ]{noun}",
            "[what|which] {noun} [do I have|are there]",
            "I want to see [my|all|the] {noun}",
            "what are my {noun}",
        ],
        "Your {noun}: {result}.",
    ),
    "add to": Deed(
        "add_to append_to put_on extend update",
        nouns.TO_ADD_TO,
        "[Add|Put] [an entry|something|an item] [to|on] the {noun}.",
        {"thing": "item"},
        [
            WANT + "[add|put] {thing} [to|on] [my|the] {noun}",
            "[maybe|I think|surely] {thing} [belongs on|should be on|goes on] [my|the] {noun}",
            "my {noun} needs {thing}",
        ],
        "{thing} on the {noun}: {result}.",
    ),
    "delete": Deed(
        "delete remove cancel erase drop",
        nouns.TO_DELETE,
        "[Delete|Remove|Cancel] a[|n] {noun}[| by name].",
        {"thing": "name"},
        [
            WANT + "[delete|remove|cancel|erase] the {noun} [|called |named ]{thing}",
            "the {noun} {thing} can be [deleted|removed]",
            "get rid of the {noun} {thing}",
        ],
        "{noun} {thing}: {result}.",
    ),
    "convert": Deed(
        "convert exchange calculate change",
        nouns.TO_CONVERT,
        "[Convert|Calculate] {noun}[| from one unit to another].",
        {"amount": "amount", "from": "from", "to": "to_unit"},
        [
            "[convert|change] {amount} {from} [to|into] {to} ({noun})",
            "{noun}: {amount} {from} in {to}",
            "how [much|many] {to} [is|are] {amount} {from} as {noun}",
            WANT + "convert the {noun} {amount} {from} to {to}",
        ],
        "{amount} {from} is {result} {to}.",
    ),
    "move": Deed(
        "move transfer copy rename send",
        nouns.TO_MOVE,
        "[Move|Transfer|Rename|Copy] a[|n] {noun} from one [place|name] to another.",
        {"a": "source", "b": "target"},
        [
            WANT + "[move|transfer|copy|rename] the {noun} from {a} to {b}",
            "[move|transfer|copy|rename] {noun} {a} to {b}",
            "the {noun} {a} should [go|move] to {b}",
        ],
        "{noun} from {a} to {b}: {result}.",
    ),
    "sum": Deed(
        "add sum plus",
        "numbers; integers; values",
        "[Add|Adds|The sum of] two {noun}.",
        {"a": "first", "b": "second"},
        [
            "[what is|what's|how much is|calculate|compute] {a} [+|plus] {b}",
            "add {a} and {b}",
            "{a} plus {b}",
            "what is the sum of {a} and {b}",
            "use the tool to add {a} and {b}",
        ],
        "{a} + {b} = {result}.",
    ),
    "product": Deed(
        "multiply product times",
        "numbers; integers; values",
        "[Multiply|Multiplies|The product of] two {noun}.",
        {"a": "first", "b": "second"},
        [
            "[what is|what's|how much is|calculate|compute] {a} [*|times|x] {b}",
            "multiply {a} [and|by|with] {b}",
            "{a} times {b}",
            "what is the product of {a} and {b}",
        ],
        "{a} * {b} = {result}.",
    ),
}

# Relative frequency of each deed.
WEIGHTS = {
    "of place": 22, "of thing": 12, "of person": 12, "by code": 8, "send": 8, "set": 5, "mode": 5,
    "switch": 5, "order": 4, "book": 5, "search": 8, "list": 4, "add to": 4, "delete": 3,
    "convert": 3, "move": 4, "sum": 3, "product": 2,
}  # fmt: skip

# Kind of value: (parameter names, pattern of descriptions).
PARAMETERS = {
    "place": ("city location place town city_name destination where city location", "[The |]"
              "[city|place|town|location][|, for example Paris|, e.g. Berlin| name]."),
    "thing": ("item thing product name object subject article title", "[The |][item|thing|product]"
              "[| to look up| name]."),
    "person": ("name person user user_name customer employee contact who", "[The |][name|person|"
               "user|customer][| of the person]."),
    "to": ("to recipient receiver person user addressee contact", "[Who gets it|The recipient|The "
           "person|The receiver]."),
    "text": ("text message body content words", "[The text|What it says|The words|The content]."),
    "code": ("id number code order_id reference tracking_number key", "[The number|The code|The "
             "id|The reference]."),
    "value": ("value level amount to target number", "[The new value|The level|The value]."),
    "mode": ("mode setting state program option", "[The mode|The new mode|Which mode]."),
    "room": ("room place location zone area", "[The room|Where|The room's name]."),
    "on": ("on state enabled active power", "[True for on|On or off|Whether it is on]."),
    "item": ("item thing product name article entry", "[The item|What|The thing]."),
    "count": ("count quantity amount number pieces", "[How many|The number of pieces|The "
              "quantity]."),
    "date": ("date day when time start", "[The day|The date|When]."),
    "query": ("query q text words topic search_query", "[What to search for|The query|The search "
              "words]."),
    "name": ("name title id label item", "[The name|Which one|Its name]."),
    "amount": ("amount value number quantity", "[How much|The amount|The number]."),
    "from": ("from from_unit source source_unit base", "[The unit it is in|The source unit|From "
             "which unit]."),
    "to_unit": ("to to_unit target target_unit", "[The unit wanted|The target unit|To which "
                "unit]."),
    "source": ("from source old old_name origin src", "[From where|The source|The old one]."),
    "target": ("to target new new_name destination dst", "[To where|The target|The new one]."),
    "first": ("a x first left n1", "[The first number|The left number]."),
    "second": ("b y second right n2", "[The second number|The right number]."),
    "days": ("days n_days day_count period", "[How many days|The number of days]."),
    "limit": ("limit max max_results count top", "[At most so many|The most results|How many "
              "results]."),
    "unit": ("unit units scale system", "[The unit|Which unit]."),
    "language": ("language lang locale tongue", "[The language|Which language]."),
    "flag": ("details verbose full history pictures", "[Whether to add|Add|With] {name}."),
}  # fmt: skip

# Kind of value of an optional parameter: pattern with which a request mentions it.
EXTRAS = {
    "days": "[ for {x} days| for the next {x} days|, {x} days]",
    "limit": "[, at most {x}|, only {x}|, no more than {x}]",
    "unit": "[ in {x}|, in {x}|, use {x}]",
    "language": "[ in {x}|, answer in {x}]",
    "flag": "[ with {x}|, with {x}|, and add {x}]",
    "no flag": "[ without {x}|, without {x}|, but no {x}]",
}
EXTRAS_OF = {
    "of place": ("days", "unit", "flag", "language"),
    "of thing": ("unit", "flag", "language"),
    "of person": ("flag",),
    "by code": ("flag", "language"),
    "search": ("limit", "flag", "language"),
    "list": ("limit", "flag"),
}

UNITS = ["celsius fahrenheit", "celsius fahrenheit kelvin", "metric imperial", "euro dollar",
         "kilometers miles", "kilograms pounds", "hours minutes"]  # fmt: skip
MODES = """
eco turbo silent night normal boost quiet sleep auto manual fast slow party reading cinema sport
red green blue warm cold soft loud draft wide narrow economy standard safe holiday
""".split()
ROOMS = """
kitchen; bedroom; bathroom; living room; garage; office; garden; hall; cellar; attic; dining room;
nursery; workshop; lobby; library; guest room; studio; balcony; corridor; pantry
""".split(";")
LANGUAGES = "English German French Spanish Italian Dutch Polish Greek".split()
CONVERTED = """
euro dollar yen pound franc meters feet miles kilometers grams ounces kilos litres gallons hours
minutes inches yards acres rupees pesos
""".split()
TEXTS = """
I am late; see you tomorrow; call me back; the meeting is moved; happy birthday; dinner is ready;
thank you for the book; bring some bread; we won the game; please wait for me; I will be there at
noon; the parcel is here; good luck; do not forget the keys; the train is late; all is well; come
home soon; the report is done; can we talk; the door is open; no news yet; lunch at twelve
""".split(";")
CITIES = """
Paris London Berlin Madrid Rome Tokyo Cairo Oslo Vienna Lisbon Athens Dublin Prague Warsaw Moscow
Beijing Delhi Sydney Toronto Chicago Boston Bern Hamburg Munich Zurich Geneva Milan Naples Porto
Brussels Amsterdam Stockholm Helsinki Copenhagen Budapest Seattle Denver Austin Dallas Miami
Nairobi Lima Bogota Santiago Seoul Osaka Mumbai Istanbul Ankara Kyiv Riga Tallinn Vilnius Sofia
Zagreb Belgrade Tunis Accra Lagos Dakar Havana Quito Hanoi Manila Jakarta Perth
""".split()
LONG_PLACES = ["New York", "San Francisco", "Los Angeles", "Cape Town", "Buenos Aires", "Rio de "
               "Janeiro", "Hong Kong", "Abu Dhabi", "Tel Aviv", "Mexico City", "Saint Helena"]
SAID_RESULTS = """
sunny; rainy; cloudy; low; high; good; bad; normal; very good; unknown so far; rising; closed; open;
in stock; sold out; on the way; delivered; waiting; late; on time; ready; lost; paid; active; empty
""".split(";")
DONE = ["ok", "done", "sent", "saved", "accepted", "booked", "changed", "success", "confirmed"]
FAILED = """
not found; unknown name; no connection; timeout; not allowed; service is down; too many requests;
invalid value; nothing there; access denied; try again later
""".split(";")
FIELDS = "level value humidity wind trend updated min max quality source code rank note".split()
