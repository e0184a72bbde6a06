// The official Anthropic client for Node against the server at argv[2]. Run by test_anthropic_node.
import assert from "node:assert/strict";
import { base, load, run, untilIdle } from "./node_kit.mjs";

const Anthropic = load("@anthropic-ai/sdk").default ?? load("@anthropic-ai/sdk");
const client = new Anthropic({ baseURL: base, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "What is InferFlux?" }];
const body = (more) => ({ model: "demo", max_tokens: 40, messages, temperature: 0, ...more });
const script = (text, more) => body({ model: "echo", script: text, ...more });

const tests = {
  async "a stream says the same as a body"() {
    const whole = await client.messages.create(body());
    assert.ok(whole.content[0].text.length > 0);
    const stream = client.messages.stream(body());
    let text = "";
    stream.on("text", (t) => (text += t));
    const final = await stream.finalMessage();
    assert.equal(text, whole.content[0].text);
    assert.equal(final.content[0].text, text);
    assert.equal(final.stop_reason, whole.stop_reason);
    assert.equal(final.usage.output_tokens, whole.usage.output_tokens);
  },
  async "events in their order"() {
    const kinds = [];
    for await (const e of await client.messages.create(script("a b", { stream: true }))) {
      if (kinds.at(-1) !== e.type) kinds.push(e.type);
    }
    assert.deepEqual(kinds, ["message_start", "content_block_start", "content_block_delta",
      "content_block_stop", "message_delta", "message_stop"]);
  },
  async "a stop sequence is named"() {
    const r = await client.messages.create(script("alpha beta gamma", { stop_sequences: ["gamma"] }));
    assert.equal(r.content[0].text, "alpha beta ");
    assert.deepEqual([r.stop_reason, r.stop_sequence], ["stop_sequence", "gamma"]);
  },
  async "text comes back to the letter"() {
    const text = "日本語 🙂 and \"quotes\"\n";
    const stream = client.messages.stream(script({ text, chunk: "char" }));
    assert.equal(await stream.finalText(), text);
  },
  async "tokens are counted"() {
    const n = (await client.messages.countTokens({ model: "demo", messages })).input_tokens;
    const { usage } = await client.messages.create(body());
    assert.equal(usage.input_tokens + usage.cache_read_input_tokens, n);
  },
  async "errors have the client's own classes"() {
    await assert.rejects(client.messages.create(body({ temperature: 9 })),
      (e) => e instanceof Anthropic.BadRequestError && /temperature/.test(e.message));
    await assert.rejects(client.messages.create(body({ model: "nobody" })),
      (e) => e instanceof Anthropic.NotFoundError && e.error.error.type === "not_found_error");
    await assert.rejects(client.messages.stream(body({ max_tokens: -1 })).finalMessage(),
      (e) => e.status === 400);
  },
  async "abort in mid-stream"() {
    const stream = client.messages.stream(
      script({ text: "word ".repeat(2000), delay_ms: 20 }, { max_tokens: 3000 }));
    let n = 0;
    stream.on("text", () => ++n === 3 && stream.abort());
    await assert.rejects(stream.done(), Anthropic.APIUserAbortError);
    await untilIdle();
  },
  async "models"() {
    const ids = [];
    for await (const m of client.models.list({ limit: 1 })) ids.push(m.id);
    assert.deepEqual(ids, ["demo", "echo"]);
  },
};

await run(tests);
