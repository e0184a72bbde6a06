// Writes src/constrain/regular/unicode_sets.def: the sets of code points of \p{..} in ECMA-262 patterns, from
// the RegExp of Node.js (ICU). Usage: node tools/unicode_sets.mjs > src/constrain/regular/unicode_sets.def
//
// A set is a list of numbers: code points outside, inside, outside, .. the set, from 0 on. A number is
// written in groups of 5 bits, least significant first; a character stands for a group, plus 32 if
// more groups follow.

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
const GENERAL_CATEGORIES = `Lu Uppercase_Letter, Ll Lowercase_Letter, Lt Titlecase_Letter,
Lm Modifier_Letter, Lo Other_Letter, Mn Nonspacing_Mark, Mc Spacing_Mark, Me Enclosing_Mark,
Nd Decimal_Number, Nl Letter_Number, No Other_Number, Pc Connector_Punctuation, Pd Dash_Punctuation,
Ps Open_Punctuation, Pe Close_Punctuation, Pi Initial_Punctuation, Pf Final_Punctuation,
Po Other_Punctuation, Sm Math_Symbol, Sc Currency_Symbol, Sk Modifier_Symbol, So Other_Symbol,
Zs Space_Separator, Zl Line_Separator, Zp Paragraph_Separator, Cc Control, Cf Format, Cs Surrogate,
Co Private_Use, Cn Unassigned`;
const BINARY = `AHex ASCII_Hex_Digit, Alpha Alphabetic, Dash Dash, Emoji Emoji,
EPres Emoji_Presentation, EMod Emoji_Modifier, EBase Emoji_Modifier_Base, EComp Emoji_Component,
ExtPict Extended_Pictographic, Hex Hex_Digit, IDS ID_Start, IDC ID_Continue, Ideo Ideographic,
Lower Lowercase, Math Math, Upper Uppercase, space White_Space, XIDS XID_Start, XIDC XID_Continue`;
const SCRIPTS = `Adlm Adlam, Ahom Ahom, Hluw Anatolian_Hieroglyphs, Arab Arabic, Armn Armenian,
Avst Avestan, Bali Balinese, Bamu Bamum, Bass Bassa_Vah, Batk Batak, Beng Bengali, Bhks Bhaiksuki,
Bopo Bopomofo, Brah Brahmi, Brai Braille, Bugi Buginese, Buhd Buhid, Cans Canadian_Aboriginal,
Cari Carian, Aghb Caucasian_Albanian, Cakm Chakma, Cham Cham, Chrs Chorasmian, Cher Cherokee,
Zyyy Common, Copt Coptic, Cpmn Cypro_Minoan, Xsux Cuneiform, Cprt Cypriot, Cyrl Cyrillic,
Dsrt Deseret, Deva Devanagari, Diak Dives_Akuru, Dogr Dogra, Dupl Duployan,
Egyp Egyptian_Hieroglyphs, Elba Elbasan, Elym Elymaic, Ethi Ethiopic, Geor Georgian,
Glag Glagolitic, Goth Gothic, Gran Grantha, Grek Greek, Gujr Gujarati, Gong Gunjala_Gondi,
Guru Gurmukhi, Hani Han, Hang Hangul, Rohg Hanifi_Rohingya, Hano Hanunoo, Hatr Hatran, Hebr Hebrew,
Hira Hiragana, Armi Imperial_Aramaic, Zinh Inherited, Phli Inscriptional_Pahlavi,
Prti Inscriptional_Parthian, Java Javanese, Kthi Kaithi, Knda Kannada, Kana Katakana, Kawi Kawi,
Kali Kayah_Li, Khar Kharoshthi, Kits Khitan_Small_Script, Khmr Khmer, Khoj Khojki, Sind Khudawadi,
Laoo Lao, Latn Latin, Lepc Lepcha, Limb Limbu, Lina Linear_A, Linb Linear_B, Lisu Lisu, Lyci Lycian,
Lydi Lydian, Mahj Mahajani, Maka Makasar, Mlym Malayalam, Mand Mandaic, Mani Manichaean,
Marc Marchen, Medf Medefaidrin, Gonm Masaram_Gondi, Mtei Meetei_Mayek, Mend Mende_Kikakui,
Merc Meroitic_Cursive, Mero Meroitic_Hieroglyphs, Plrd Miao, Modi Modi, Mong Mongolian, Mroo Mro,
Mult Multani, Mymr Myanmar, Nbat Nabataean, Nagm Nag_Mundari, Nand Nandinagari, Talu New_Tai_Lue,
Newa Newa, Nkoo Nko, Nshu Nushu, Hmnp Nyiakeng_Puachue_Hmong, Ogam Ogham, Olck Ol_Chiki,
Hung Old_Hungarian, Ital Old_Italic, Narb Old_North_Arabian, Perm Old_Permic, Xpeo Old_Persian,
Sogo Old_Sogdian, Sarb Old_South_Arabian, Orkh Old_Turkic, Ougr Old_Uyghur, Orya Oriya, Osge Osage,
Osma Osmanya, Hmng Pahawh_Hmong, Palm Palmyrene, Pauc Pau_Cin_Hau, Phag Phags_Pa, Phnx Phoenician,
Phlp Psalter_Pahlavi, Rjng Rejang, Runr Runic, Samr Samaritan, Saur Saurashtra, Shrd Sharada,
Shaw Shavian, Sidd Siddham, Sgnw SignWriting, Sinh Sinhala, Sogd Sogdian, Sora Sora_Sompeng,
Soyo Soyombo, Sund Sundanese, Sylo Syloti_Nagri, Syrc Syriac, Tglg Tagalog, Tagb Tagbanwa,
Tale Tai_Le, Lana Tai_Tham, Tavt Tai_Viet, Takr Takri, Taml Tamil, Tnsa Tangsa, Tang Tangut,
Telu Telugu, Thaa Thaana, Thai Thai, Tibt Tibetan, Tfng Tifinagh, Tirh Tirhuta, Toto Toto,
Ugar Ugaritic, Gara Garay, Gukh Gurung_Khema, Krai Kirat_Rai,
Onao Ol_Onal, Sunu Sunuwar, Todr Todhri, Tutg Tulu_Tigalari, Berf Beria_Erfe, Sidt Sidetic,
Tayo Tai_Yo, Tols Tolong_Siki, Vaii Vai, Vith Vithkuqi, Wcho Wancho, Wara Warang_Citi, Yezi Yezidi, Yiii Yi,
Zanb Zanabazar_Square`;

function numbers(expression) {
    const re = new RegExp(`^\\p{${expression}}$`, "u"), list = [];
    let inside = false, start = 0;
    for (let cp = 0; cp <= 0x110000; cp++) {
        const has = cp <= 0x10ffff && re.test(String.fromCodePoint(cp));
        if (has !== inside || cp === 0x110000) {
            if (cp < 0x110000 || inside)
                list.push(cp - start);
            inside = has;
            start = cp;
        }
    }
    return list;
}

function encode(n) {
    let text = "";
    for (; n >= 32; n = Math.floor(n / 32))
        text += ALPHABET[32 + n % 32];
    return text + ALPHABET[n];
}

function write(kind, property, rows) {
    for (const row of rows.split(/,\s*/)) {
        const [short, long] = row.split(" ");
        const text = numbers(property + short).map(encode).join("");
        const lines = text.match(/.{1,90}/g).map((line) => `\n    "${line}"`).join("");
        console.log(`UNICODE_SET(${kind}, "${short}", "${long}",${lines})`);
    }
}

console.log(`/* unicode_sets.def: UNICODE_SET(kind, short name, long name, ranges): sets of code points of \\p{..} in
 * ECMA-262 patterns, Unicode ${process.versions.unicode}. Written by tools/unicode_sets.mjs, which describes the format. */`);
write("GENERAL_CATEGORY", "gc=", GENERAL_CATEGORIES);
write("BINARY", "", BINARY);
write("SCRIPT", "sc=", SCRIPTS);
