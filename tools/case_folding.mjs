// Writes src/constrain/regular/case_folding.def: the characters that ECMA-262 patterns with the flags `i` and `u`
// do not distinguish, from the RegExp of Node.js (ICU). Usage:
// node tools/case_folding.mjs > src/constrain/regular/case_folding.def

const orbits = new Map(); // code point -> set of equal ones

function single(text, c) {
    const all = [...text];
    return all.length === 1 ? all[0].codePointAt(0) : c;
}

function isEqual(a, b) {
    return new RegExp(`^\\u{${a.toString(16)}}$`, "iu").test(String.fromCodePoint(b));
}

function join(a, b) {
    if (a === b || !isEqual(a, b))
        return;
    const all = new Set([...(orbits.get(a) ?? [a]), ...(orbits.get(b) ?? [b])]);
    for (const c of all)
        orbits.set(c, all);
}

for (let c = 0; c < 0x20000; c++) {
    if (c >= 0xd800 && c <= 0xdfff)
        continue;
    const text = String.fromCodePoint(c);
    const lower = single(text.toLowerCase(), c);
    const upper = single(text.toUpperCase(), c);
    join(c, lower);
    join(c, upper);
    join(c, single(String.fromCodePoint(upper).toLowerCase(), c));
    join(c, single(String.fromCodePoint(lower).toUpperCase(), c));
}

// Each character leads to the next of its orbit, and the last to the first.
const next = new Map();
for (const [c, all] of orbits) {
    const sorted = [...all].sort((a, b) => a - b);
    next.set(c, sorted[(sorted.indexOf(c) + 1) % sorted.length]);
}

// Runs of characters at equal distances with equal differences.
const left = new Set([...next.keys()].sort((a, b) => a - b));
const runs = [];
for (const from of left) {
    const delta = next.get(from) - from;
    const length = (step) => {
        let n = 1;
        while (left.has(from + n * step) && next.get(from + n * step) - (from + n * step) === delta)
            n++;
        return n;
    };
    const step = length(2) > length(1) ? 2 : 1;
    const n = length(step);
    for (let k = 0; k < n; k++)
        left.delete(from + k * step);
    runs.push(`CASE_FOLD(0x${from.toString(16).toUpperCase()}, ` +
        `0x${(from + (n - 1) * step).toString(16).toUpperCase()}, ${step}, ${delta})`);
}

console.log(`/* case_folding.def: CASE_FOLD(from, to, step, difference): the characters from, from + step, .. to
 * are equal to those at this difference in patterns without regard to case, Unicode ${
    process.versions.unicode}. The
 * differences lead from a character to the next one of its class, and from the last to the first.
 * Written by tools/case_folding.mjs. */`);
console.log(runs.join("\n"));
