// Writes key sets, tokens, and the verdict of `jose` about each token, for test_jwt.py.
//
//     node jwt_tokens.mjs COUNT SEED MODULES ISSUER AUDIENCE SKEW_S NOW_S
//
// Lines: a key set, or TOKEN TAB VERDICT TAB KIND. A verdict is `ok SUBJECT` or `no CODE`.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { createHmac } from "node:crypto";

const [count, seed, modules, issuer, audience, skew, now] = process.argv.slice(2);
const require = createRequire(modules + "/package.json");
const jose = await import(pathToFileURL(require.resolve("jose")));
const ALGORITHMS = ["RS256", "PS256", "ES256", "EdDSA"];
const T = Number(now), SKEW = Number(skew);

let state = Number(seed) >>> 0;
function random(n) { // mulberry32
  state = (state + 0x6d2b79f5) >>> 0;
  let t = Math.imul(state ^ (state >>> 15), state | 1);
  t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
  return (((t ^ (t >>> 14)) >>> 0) / 4294967296) * n | 0;
}
const pick = (list) => list[random(list.length)];
const encode = (v) => Buffer.from(typeof v == "string" ? v : JSON.stringify(v)).toString("base64url");

const keys = [];
for (const [alg, kid] of [["RS256", "rsa"], ["RS256", "rsa2"], ["ES256", "ec"], ["EdDSA", "ed"],
  ["ES384", "ec384"], ["ES256", "stranger"], ["EdDSA", "stranger"], ["RS256", "stranger"]]) {
  const pair = await jose.generateKeyPair(alg, { extractable: true, modulusLength: 2048 });
  keys.push({ alg, kid, pair, jwk: await jose.exportJWK(pair.publicKey), subtle: {} });
}
// The same RSA key signs with both paddings.
const privateOf = async (k, alg) =>
  k.subtle[alg] ??= await jose.importJWK(await jose.exportJWK(k.pair.privateKey), alg);

function keySet() {
  const members = [];
  for (const k of keys.filter((k) => k.kid != "stranger")) {
    const jwk = { ...k.jwk, kid: k.kid };
    if (!random(8)) jwk.use = pick(["sig", "sig", "enc", 1]);
    if (!random(10)) jwk.alg = pick([k.alg, "PS256", "HS256", null]);
    if (!random(16)) jwk.key_ops = pick([["verify"], ["sign"], ["verify", "verify"], [], "verify"]);
    if (!random(20)) jwk.kid = pick(["", "x", 7, "rsa", "ec"]);
    if (!random(20)) delete jwk.kid;
    if (!random(30)) jwk.ext = pick([true, "true"]);
    if (!random(40)) jwk.crv = pick(["P-384", "X25519", "P-256"]);
    if (!random(40)) jwk.kty = pick(["oct", "EC", "OKP", "rsa"]);
    if (!random(40)) jwk.x = jwk.n = pick(["", "AA", "!", jwk.n ?? jwk.x]);
    if (random(10)) members.push(jwk);
  }
  members.push({ kty: "oct", kid: "hmac", k: encode("secret"), alg: "HS256" });
  return { keys: members };
}

const TIMES = [T - SKEW - 1, T - SKEW, T - SKEW + 1, T - 1, T, T + 1, T + SKEW - 1, T + SKEW,
  T + SKEW + 1, T + 3600, T + 3600, T + 3600, 0, -1, 1e15, T + 0.5, String(T + 60), null, true];
function claims() {
  const c = { iss: issuer, aud: audience, sub: "user" + random(100), exp: T + 3600 };
  for (let n = random(2) ? 0 : random(4); n > 0; n--)
    switch (random(8)) {
      case 0: c.exp = pick(TIMES); break;
      case 1: c.nbf = pick(TIMES); break;
      case 2: c.iat = pick(TIMES); break;
      case 3: c.aud = pick([[audience, "other"], ["other"], [], "other", [1, audience], null, 7,
        { a: audience }, audience + " ", [[audience]]]); break;
      case 4: c.iss = pick([issuer + "/", issuer.toUpperCase(), [issuer], null, ""]); break;
      case 5: delete c[pick(["iss", "aud", "exp"])]; break;
      case 6: c.text = pick(["é\u20ac\ud83d\ude00", { deep: [[1, 2.5e-3], null] }, "\u0000"]); break;
      default: c.scope = "read generate";
    }
  return c;
}

async function sign(header, payload, k) {
  const text = encode(header) + "." + encode(payload);
  const subtle = { RS256: { name: "RSASSA-PKCS1-v1_5" }, PS256: { name: "RSA-PSS", saltLength: 32 },
    ES256: { name: "ECDSA", hash: "SHA-256" }, ES384: { name: "ECDSA", hash: "SHA-384" },
    EdDSA: { name: "Ed25519" } };
  const alg = k.alg == "RS256" && header.alg == "PS256" ? "PS256" : k.alg;
  const bytes = await crypto.subtle.sign(subtle[alg], await privateOf(k, alg), Buffer.from(text));
  return text + "." + Buffer.from(bytes).toString("base64url");
}

const ALTERED = {
  none: (t) => t,
  algorithm: (t, p) => [encode({ ...p.header, alg: pick(["none", "None", "HS256", "RS512", "ES384", "",
    "rs256", 7, "Ed25519", ...ALGORITHMS]) }), p[1], p[2]].join("."),
  hmac: (t, p) => { // the public key as the secret of an HMAC
    const text = encode({ alg: "HS256", kid: pick(["hmac", p.header.kid]) }) + "." + p[1];
    return text + "." + createHmac("sha256", JSON.stringify(p.key.jwk)).update(text).digest("base64url");
  },
  unsigned: (t, p) => encode({ alg: "none" }) + "." + p[1] + ".",
  kid: (t, p) => [encode({ ...p.header, kid: pick(["", "x", "ec", "rsa", 7, null, "../../dev/null"]) }),
    p[1], p[2]].join("."),
  byte: (t) => { const i = random(t.length), c = pick([..."ABab09-_.=+/ ~"]);
    return t.slice(0, i) + c + t.slice(i + 1); },
  cut: (t) => t.slice(0, random(t.length)),
  // Bits of the last character that belong to no byte.
  spare: (t) => t.slice(0, -1) + { A: "B", Q: "R", g: "h", w: "x" }[t.slice(-1)],
  longer: (t) => t + pick(["A", ".", "=", "AAAA", ".A"]),
  swap: (t, p, other) => [p[0], other.split(".")[1], p[2]].join("."),
  signature: (t, p) => { const b = Buffer.from(p[2], "base64url"); b[random(b.length)] ^= 1 << random(8);
    return [p[0], p[1], b.toString("base64url")].join("."); },
  zeros: (t, p) => [p[0], p[1], Buffer.alloc(pick([0, 63, 64, 65, 256])).toString("base64url")].join("."),
  claims: (t, p) => [p[0], encode({ ...p.claims, sub: "admin" }), p[2]].join("."),
  parts: (t, p) => pick([p[0] + "." + p[1], t + "." + p[2], "..", "", p[1] + "." + p[0] + "." + p[2]]),
};

async function token(other) {
  const k = random(8) ? keys[random(4)] : pick(keys);
  const header = { alg: k.alg == "RS256" ? pick(["RS256", "PS256"]) : k.alg, kid: k.kid };
  if (k.kid == "stranger") header.kid = pick(["rsa", "ec", "ed", "none"]);
  if (!random(5)) delete header.kid;
  if (!random(10)) header.typ = pick(["JWT", "at+jwt", 1]);
  if (!random(30)) header.crit = pick([["exp"], [], "exp", ["x"]]);
  const c = claims();
  // Sometimes what is signed is no object, or no JSON.
  const payload = random(40) ? c : pick(["[]", "null", "1", "{", "{}x", '{"iss":1,}', "\ufeffx"]);
  const good = await sign(header, payload, k);
  const kind = random(2) ? "none" : pick(Object.keys(ALTERED));
  const p = Object.assign(good.split("."), { header, claims: c, key: k });
  return [ALTERED[kind](good, p, other), kind, good];
}

async function verdict(t, set) {
  try {
    const { payload } = await jose.jwtVerify(t, set, { issuer, audience, algorithms: ALGORITHMS,
      clockTolerance: SKEW, currentDate: new Date(T * 1000), requiredClaims: ["exp"] });
    return "ok " + payload.sub;
  } catch (e) {
    return "no " + (e.code ?? e.name);
  }
}

let previous = "a.b.c", out = [];
for (let i = 0, set; i < Number(count); i++) {
  if (i % 50 == 0) {
    const keySetNow = keySet();
    out.push(JSON.stringify(keySetNow));
    set = jose.createLocalJWKSet(keySetNow);
  }
  const [t, kind, good] = await token(previous);
  previous = good;
  out.push([t, await verdict(t, set), kind].join("\t"));
  if (out.length > 1000)
    process.stdout.write(out.splice(0).join("\n") + "\n");
}
process.stdout.write(out.join("\n") + "\n");
