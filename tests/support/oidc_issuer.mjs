// The certified OpenID provider `oidc-provider` on a loopback port, controlled by lines of JSON on
// stdin; each gets one line of JSON on stdout. The first line of stdout is {"issuer": URL}.
//
//     node oidc_issuer.mjs MODULES
//
//   {"keys": [NAME, ...], "alg": ALG}  publishes these keys; access tokens are signed with the first,
//                                      which has this algorithm. Unknown names become new keys
//   {"down": true|false}               every response is 503
//   {"token": CLAIMS, "key": NAME, "header": {..}}   signs claims with a key, without the provider
//   {"body": TEXT, "status": N, "path": PATH}        a fixed response for a path
//   {"counts": true}                   number of requests by path
//   {"client": REDIRECT_URI, "public": true|false}   the client `browser` of the code flow
//   {"user": NAME|null}                the user that the issuer logs in; null: refused
//   {"ttl": SECONDS}                   lifetime of access tokens
import { createRequire } from "node:module";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const require = createRequire(process.argv[2] + "/package.json");
const load = (name) => import(pathToFileURL(require.resolve(name)));
const jose = await load("jose");
const { default: Provider } = await load("oidc-provider");
const KINDS = { RS256: "RS256", PS256: "RS256", ES256: "ES256", EdDSA: "EdDSA" };

const keys = {}, counts = {}, fixed = {};
let isDown = false, provider, issuer, handler, last = [["first"], "RS256"];
let user = "ann", ttl = 600, browser = [];

async function key(name, alg) {
  if (!keys[name]) {
    const pair = await jose.generateKeyPair(KINDS[alg], { extractable: true });
    keys[name] = { alg, jwk: { ...await jose.exportJWK(pair.privateKey), kid: name, use: "sig", alg } };
  }
  return keys[name];
}

// Logs the current user in, without a form.
async function interact(req, res) {
  if (user === null)
    return provider.interactionFinished(req, res, { error: "access_denied" });
  const { prompt } = await provider.interactionDetails(req, res);
  return provider.interactionFinished(req, res,
    prompt.name === "login" ? { login: { accountId: user } } : { consent: {} },
    { mergeWithLastSubmission: true });
}

async function loadExistingGrant(ctx) {
  const grant = new ctx.oidc.provider.Grant({ clientId: ctx.oidc.client.clientId,
    accountId: ctx.oidc.session.accountId });
  grant.addOIDCScope("openid offline_access read generate admin");
  grant.addResourceScope("urn:inferflux", "read generate admin");
  await grant.save();
  return grant;
}

async function publish(names, alg) {
  last = [names, alg];
  const jwks = [];
  for (const name of names)
    jwks.push((await key(name, alg)).jwk);
  const resource = { scope: "read generate admin", audience: "inferflux", accessTokenFormat: "jwt",
    accessTokenTTL: ttl, jwt: { sign: { alg, kid: names[0] } } };
  provider = new Provider(issuer, {
    jwks: { keys: jwks },
    clients: [{ client_id: "app", client_secret: "secret", redirect_uris: [], response_types: [],
      grant_types: ["client_credentials"], id_token_signed_response_alg: alg },
    ...browser.map((b) => ({ ...b, id_token_signed_response_alg: alg }))],
    interactions: { url: (ctx, i) => `/interaction/${i.uid}` },
    loadExistingGrant,
    issueRefreshToken: async (ctx, client) => client.grantTypeAllowed("refresh_token"),
    rotateRefreshToken: true,
    findAccount: (ctx, id) => user === null ? undefined : { accountId: id, claims: () => ({ sub: id,
      scope: "read" }) },
    claims: { openid: ["sub", "scope"] },
    conformIdTokenClaims: false,
    enabledJWA: { idTokenSigningAlgValues: ["RS256", "PS256", "ES256", "EdDSA"] },
    scopes: ["read", "generate", "admin"],
    extraTokenClaims: () => ({ tenant: "acme" }),
    features: { clientCredentials: { enabled: true }, devInteractions: { enabled: false },
      resourceIndicators: { enabled: true, defaultResource: () => "urn:inferflux",
        getResourceServerInfo: () => resource, useGrantedResource: () => true } },
  });
  handler = provider.callback();
}

const server = createServer((req, res) => {
  const path = req.url.split("?")[0];
  counts[path] = (counts[path] ?? 0) + 1;
  if (isDown || fixed[path])
    res.writeHead(isDown ? 503 : fixed[path].status).end(isDown ? "" : fixed[path].body);
  else if (path.startsWith("/interaction/"))
    interact(req, res).catch((e) => res.writeHead(500).end(String(e)));
  else
    handler(req, res);
});
await new Promise((done) => server.listen(0, "127.0.0.1", done));
issuer = `http://127.0.0.1:${server.address().port}`;
await publish(["first"], "RS256");
console.warn = console.info = () => {};
console.log(JSON.stringify({ issuer }));

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  let reply = {};
  if (command.keys)
    await publish(command.keys, command.alg);
  if ("ttl" in command)
    ttl = command.ttl;
  if ("user" in command)
    user = command.user;
  if (command.client)
    browser = [{ client_id: "browser", redirect_uris: [command.client], response_types: ["code"],
      grant_types: ["authorization_code", "refresh_token"],
      ...command.public ? { token_endpoint_auth_method: "none" } : { client_secret: "s3cret+/ %" } }];
  if (command.client || "ttl" in command)
    await publish(...last);
  if ("down" in command)
    isDown = command.down;
  if (command.path)
    fixed[command.path] = command.status && { status: command.status, body: command.body };
  if (command.token) {
    const k = await key(command.key, command.alg ?? "RS256");
    const header = { alg: k.alg, kid: command.key, ...command.header };
    reply.token = await new jose.CompactSign(new TextEncoder().encode(JSON.stringify(command.token)))
      .setProtectedHeader(header).sign(await jose.importJWK(k.jwk, header.alg));
  }
  if (command.counts)
    reply.counts = counts;
  console.log(JSON.stringify(reply));
}
process.exit(0);
