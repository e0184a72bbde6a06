// The official OpenAI client for Node against the server at argv[2]. Run by test_openai_node.
import assert from "node:assert/strict";
import { base, load, run, untilIdle } from "./node_kit.mjs";

const OpenAI = load("openai").default ?? load("openai");
const client = new OpenAI({ baseURL: base + "/v1", apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "What is InferFlux?" }];
const ask = (more) =>
  client.chat.completions.create({ model: "demo", messages, temperature: 0, max_tokens: 40, ...more });
const script = (text, more) =>
  client.chat.completions.create({ model: "echo", messages, script: text, ...more });

async function gather(stream) {
  let text = "";
  for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
  return text;
}

const tests = {
  async "stream and body have the same content"() {
    const body = await ask({});
    assert.ok(body.choices[0].message.content.length > 0);
    assert.equal(await gather(await ask({ stream: true })), body.choices[0].message.content);
  },
  async "n choices and usage"() {
    const r = await ask({ n: 2, temperature: 1.2, seed: 3 });
    assert.deepEqual(r.choices.map((c) => c.index), [0, 1]);
    assert.equal(r.usage.total_tokens, r.usage.prompt_tokens + r.usage.completion_tokens);
  },
  async "logprobs"() {
    const r = await ask({ logprobs: true, top_logprobs: 2, max_tokens: 4 });
    assert.equal(r.choices[0].logprobs.content[0].top_logprobs.length, 2);
  },
  async "a stop string ends the response"() {
    const r = await script("alpha beta gamma", { stop: "gamma" });
    assert.equal(r.choices[0].message.content, "alpha beta ");
  },
  async "text is returned unchanged"() {
    const text = "日本語 🙂 and \"quotes\"\n";
    assert.equal(await gather(await script({ text, chunk: "char" }, { stream: true })), text);
  },
  async "errors name the parameter"() {
    await assert.rejects(ask({ temperature: 9 }), (e) => e.status === 400 && e.param === "temperature");
    await assert.rejects(ask({ model: "nobody" }), (e) => e.status === 404 && e.code === "model_not_found");
  },
  async "abort during the stream"() {
    const stream = await script({ text: "word ".repeat(2000), delay_ms: 20 }, { stream: true });
    let n = 0;
    for await (const _ of stream) if (++n === 3) stream.controller.abort();
    await untilIdle();
  },
  async "models"() {
    const ids = [];
    for await (const m of client.models.list()) ids.push(m.id);
    assert.deepEqual(ids, ["demo", "echo"]);
  },
};

await run(tests);
