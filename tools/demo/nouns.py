"""Objects of the tools in the demo dialogues, by the kind of action."""

OF_PLACE = """
weather; temperature; forecast; humidity; local time; population; air quality; wind speed; sunrise;
sunset; rainfall; traffic; pollen count; water level; snow depth; tide; mayor; area code; postcode;
currency; holiday list; noise level; rent index; crime rate; bus schedule; train schedule; news;
parking fee; petrol price; event list; power usage; elevation; timezone; UV index; flood risk;
visibility; dew point; cloud cover; moonrise; soil moisture; fog warning; storm warning;
average income; birth rate; land area; founding year; country; province; dialect; voltage;
plug type; sales tax; road tolls; speed limits; ferry schedule; tram lines; museum hours;
opening hours; school calendar; recycling dates; emergency number; hospital count;
vaccination rules; visa rules; dress code; tipping custom; rent; house prices; unemployment;
literacy; life expectancy; fire danger; water quality; river level; beach status; ski conditions;
avalanche risk; earthquake history; radiation level; broadband coverage; fuel cost; taxi fare;
metro map; ticket office; curfew; election results; football club; landmark; national dish;
altitude; latitude; longitude; coordinates; zip code; airport code; season; daylight; heat index;
frost date; harvest date; bird count; insect count; allergy index
"""
OF_THING = """
price; weight; stock level; rating; colour; owner; size; age; score; location; warranty; discount;
delivery time; manual; recipe; calorie count; meaning; translation; definition; battery level;
speed; length; review; availability; serial number; shelf; supplier; popularity; barcode; summary;
ingredient list; synonym; origin; price history; exchange rate; market value; cost estimate;
dimensions; width; height; depth; diameter; capacity; material; texture; flavour; expiry date;
release date; version; license; publisher; author; genre; rank; grade; status; condition;
power usage; energy class; melting point; density; hardness; voltage rating; torque; horsepower;
mileage; fuel type; tyre size; part number; model number; catalogue page; shipping cost;
return policy; tax rate; margin; sales figures; downloads; star count; checksum; file size; format;
resolution; frame rate; duration; chapter list; plot; cast; lyrics; tempo; key signature;
etymology; pronunciation; antonym; plural form; symbol; atomic number; habitat; diet; lifespan;
scientific name; nutrition facts; sugar content; allergens; cooking time; vintage;
country of origin; care label; safety sheet; forecast demand; resale value; insurance class;
risk score; carbon footprint; vote count; citation; coordinates
"""
OF_PERSON = """
phone number; address; email; birthday; salary; calendar; balance; role; manager; department;
shift; badge number; nickname; order history; profile; home town; office; seat; contact;
vacation days; account; team; playlist; last login; job title; favourite song; mailbox size;
password policy; mobile number; job history; skills; start date; contract type; pay grade; bonus;
holiday balance; sick days; time sheet; travel plan; supervisor; mentor; desk; parking spot;
locker; laptop model; access level; security clearance; signature; photo; biography; blood type;
allergies; shoe size; height; native language; nationality; marital status; next appointment;
medical record; prescriptions; credit limit; loyalty points; membership; subscription;
invoice address; bank details; tax number; voting district; best time; medals; publications;
citations; followers; latest post; availability; working hours; time zone; pronouns;
emergency contact; favourite colour; favourite film; lunch choice; locker code; library card;
borrowed books; fines; grades; course list; homework; attendance; exam result; tutor; class
"""
BY_CODE = """
order; flight; invoice; ticket; parcel; shipment; booking; claim; contract; payment; refund;
repair; delivery; case; train; package; reservation; application; server; device; transaction; job;
purchase; return; complaint; support request; bug; task; incident; warranty claim; permit; licence;
passport; visa; cheque; transfer; loan; mortgage; policy; prescription; lab sample; test result;
patient; room key; locker; bus; ferry; container; pallet; truck; vessel; coupon; voucher;
gift card; subscription; membership; auction; bid; tender; lease; deposit; rental; inspection;
audit; build; release; deployment; upload; download; backup job; query job; survey; vote
"""
TO_SEND = """
message; email; note; text; letter; postcard; greeting; reminder; invitation; alert; fax; memo;
telegram; notice; warning; apology; thank-you card; birthday card; complaint; offer; quote;
newsletter; report; summary; proposal; reply; comment; chat message; voice message; pager message;
love letter; press release; poem; recipe; joke; receipt; order confirmation; question;
announcement; follow-up; wish; toast
"""
TO_SET = """
volume; brightness; thermostat; timer; heating; fan speed; price limit; oven; alarm level;
speed limit; zoom; quota; budget; contrast; humidity; bass; timeout; backlight; pressure;
step goal; frame rate; shutter speed; saturation; sharpness; volume limit; ring volume;
screen width; font size; line height; page margin; indent; tab width; retry count; cache size;
thread count; batch size; port number; log level; sample rate; bit rate; gain; treble; balance;
humidity target; water level; flow rate; spin speed; rinse count; wake time; snooze time;
sleep timer; fridge temperature; freezer temperature; dose; interval; threshold; rate limit;
tax percentage; discount percentage; savings goal; calorie goal; weight goal; pulse limit; incline;
resistance; seat height; mirror angle; tyre pressure; cruise speed
"""
WITH_MODE = """
lamp; radio; camera; printer; dishwasher; robot; screen; drone; heater; engine; projector;
keyboard; washing machine; dryer; toaster; kettle; oven; microwave; fridge; speaker; television;
monitor; phone; tablet; laptop; watch; car; scooter; elevator; thermostat; fan; humidifier;
purifier; vacuum; mower; sprinkler; doorbell; gate; alarm; sewing machine; scanner; router;
headset; amplifier; mixer; console; piano; guitar pedal; telescope; treadmill
"""
TO_SWITCH = """
light; lights; heating; fan; radio; television; alarm; camera; oven; heater; sprinkler; speaker;
air conditioner; projector; coffee machine; router; vacuum; dishwasher; pump; blinds; lamp;
ceiling fan; night light; chandelier; neon sign; floor heating; radiator; boiler; kettle; toaster;
microwave; freezer; dryer; washing machine; humidifier; purifier; air filter; monitor; screen;
scanner; printer; computer; server rack; doorbell; door lock; window opener; curtain motor;
fountain; aquarium light; grow light; fog machine; disco ball; amplifier; subwoofer; microphone;
smoke detector; motion sensor; charger; electric blanket; ice maker; bread maker; extractor hood
"""
TO_ORDER = """
food; groceries; supplies; spare parts; furniture; books; flowers; drinks; tools; clothes; toys;
medicine; vitamins; coffee beans; wine; cheese; bread; vegetables; fruit; meat; fish; snacks;
pet food; garden plants; seeds; paint; timber; bricks; tiles; cables; batteries; light bulbs;
printer ink; paper; office chairs; uniforms; shoes; jewellery; perfume; cosmetics; gifts; stamps;
magazines; music records; video games; sports gear; bike parts; camera gear
"""
TO_BOOK = """
hotel; room; table; taxi; flight; train; car; bicycle; ticket; seat; meeting; appointment; tour;
boat; haircut; lesson; doctor; studio; tennis court; massage; cabin; campsite; hostel; villa;
apartment; conference room; desk; parking space; locker; limousine; minibus; van; scooter; kayak;
canoe; ski pass; golf slot; squash court; swimming lane; yoga class; dance lesson; piano lesson;
driving lesson; museum visit; city walk; wine tasting; cooking class; concert; opera box;
cinema seat; dentist; optician; physiotherapist; vet; manicure; photo shoot; babysitter; cleaner;
plumber; electrician; gardener; interpreter; tutor; guide; chapel; ballroom
"""
TO_SEARCH = """
books; songs; films; articles; papers; recipes; photos; files; emails; jobs; houses; courses;
restaurants; podcasts; videos; documents; notes; products; maps; patents; games; the web; news;
magazines; newspapers; encyclopedias; journals; theses; reports; contracts; invoices; receipts;
tickets; messages; bookmarks; contacts; calendars; events; concerts; museums; hotels; flights;
trains; cars; bikes; apartments; offices; shops; brands; coupons; reviews; forums; questions;
answers; tutorials; lectures; datasets; libraries; packages; repositories; issues; commits; logs;
tables; records; genes; proteins; chemicals; species; stars; planets; coins; stamps; paintings;
statues; poems
"""
TO_LIST = """
alarms; tasks; orders; users; files; devices; meetings; playlists; rooms; reminders; projects;
servers; contacts; backups; tickets; printers; branches; friends; lamps; accounts; invoices;
bookmarks; passwords; keys; tokens; sessions; jobs; queues; volumes; networks; routes; rules;
policies; groups; teams; roles; members; customers; suppliers; products; offers; coupons; payments;
refunds; subscriptions; loans; cards; trips; flights; hotels; bookings; appointments; birthdays;
holidays; notes; drafts; photos; albums; songs; films; books; courses; exams; recipes; plants;
pets; cars; sensors; cameras; lights; scenes; timers; medicines; workouts; goals
"""
TO_ADD_TO = """
shopping list; calendar; playlist; to-do list; wish list; cart; guest list; reading list; menu;
watch list; packing list; inventory; grocery list; gift list; bucket list; task list; agenda;
diary; notebook; library; favourites; queue; album; collection; address book; phone book; budget;
expense report; time sheet; roster; schedule; backlog; board; bookmarks; blacklist; whitelist;
mailing list; waiting list; price list; recipe book; photo album; travel plan; workout plan;
meal plan; lesson plan
"""
TO_DELETE = """
file; alarm; note; user; reminder; photo; account; meeting; backup; message; playlist; task;
record; folder; document; email; draft; contact; event; appointment; booking; order; invoice;
payment; card; bookmark; tag; label; comment; post; video; song; album; recipe; list; board;
project; ticket; branch; release; server; volume; network; rule; key; token; session; job; timer;
scene; sensor; group; member; role; policy; subscription; coupon; product; customer; supplier
"""
TO_CONVERT = """
currency; money; length; weight; unit; temperature; volume; distance; area; time; speed; pressure;
energy; power; angle; data size; fuel consumption; frequency; shoe size; clothing size;
cooking measure
"""
TO_MOVE = """
file; folder; document; photo; task; card; ticket; song; note; project; user; robot; image; video;
email; message; contact; account; server; database; table; row; column; page; slide; chapter; book;
album; playlist; plant; box; pallet; container; truck; desk; chair; patient; student; employee;
customer; order; booking; meeting; payment; domain; branch; label
"""
# Modifiers that can precede a noun.
KINDS = """
average current daily weekly monthly yearly maximum minimum expected total official latest previous
regional local public private personal main second first final original full estimated old new
""".split()
