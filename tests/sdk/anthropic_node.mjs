// The official Anthropic client for Node against the server at argv[2]. Run by test_anthropic_node.
import assert from "node:assert/strict";
import { base, load, run, untilIdle } from "./node_kit.mjs";

const Anthropic = load("@anthropic-ai/sdk").default ?? load("@anthropic-ai/sdk");
const { betaTool } = load("@anthropic-ai/sdk/helpers/beta/json-schema");
const client = new Anthropic({ baseURL: base, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "What is InferFlux?" }];
const body = (more) => ({ model: "demo", max_tokens: 40, messages, temperature: 0, ...more });
const script = (text, more) => body({ model: "echo", script: text, ...more });

const weather = { name: "get_weather", description: "The weather of a city.",
  input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } };
const call = (city) =>
  `<tool_call>\n${JSON.stringify({ name: "get_weather", arguments: { city } })}\n</tool_call>`;

const tests = {
  async "reasoning, text and a call, in a body and a stream"() {
    const text = `<think>\nHm.\n</think>\n\nLet me see. ${call("Zürich")}`;
    const more = { tools: [weather], max_tokens: 900 };
    const whole = await client.messages.create(script(text, more));
    assert.equal(whole.stop_reason, "tool_use");
    assert.deepEqual(whole.content.map((b) => b.type), ["thinking", "text", "tool_use"]);
    assert.ok(whole.content[0].signature.length > 0);
    for (const chunk of ["token", "char", "all"]) {
      const stream = client.messages.stream(script({ text, chunk }, more));
      let thought = "", json = "";
      stream.on("thinking", (t) => (thought += t)).on("inputJson", (t) => (json += t));
      const final = await stream.finalMessage();
      assert.deepEqual([thought, JSON.parse(json)], ["Hm.", { city: "Zürich" }]);
      assert.deepEqual(final.content[2].input, { city: "Zürich" });
      assert.match(final.content[2].id, /^toolu_/);
      assert.equal(final.content[0].signature, whole.content[0].signature);
      assert.equal(final.stop_reason, "tool_use");
    }
  },
  async "a tool runner completes three turns"() {
    const asked = [];
    const tool = betaTool({ name: "get_weather", description: "The weather of a city.",
      inputSchema: weather.input_schema, run: ({ city }) => (asked.push(city), `sunny in ${city}`) });
    const turns = [`One moment. ${call("Rome")}`, call("Oslo") + call("Bern"), "Sunny everywhere."];
    for (const stream of [false, true]) {
      asked.length = 0;
      const final = await client.beta.messages.toolRunner(
        body({ model: "echo", max_tokens: 300, tools: [tool], script: turns, stream })).runUntilDone();
      assert.deepEqual(asked, ["Rome", "Oslo", "Bern"]);
      assert.equal(final.content.at(-1).text, "Sunny everywhere.");
    }
  },
  async "tools count as tokens"() {
    const n = async (more) => (await client.messages.countTokens({ model: "echo", messages, ...more })).input_tokens;
    assert.ok((await n({ tools: [weather] })) > (await n({})));
  },
  async "stream and body have the same content"() {
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
  async "events are in order"() {
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
  async "text is returned unchanged"() {
    const text = "日本語 🙂 and \"quotes\"\n";
    const stream = client.messages.stream(script({ text, chunk: "char" }));
    assert.equal(await stream.finalText(), text);
  },
  async "tokens are counted"() {
    const n = (await client.messages.countTokens({ model: "demo", messages })).input_tokens;
    const { usage } = await client.messages.create(body());
    assert.equal(usage.input_tokens + usage.cache_read_input_tokens, n);
  },
  async "errors have the classes of the client"() {
    await assert.rejects(client.messages.create(body({ temperature: 9 })),
      (e) => e instanceof Anthropic.BadRequestError && /temperature/.test(e.message));
    await assert.rejects(client.messages.create(body({ model: "nobody" })),
      (e) => e instanceof Anthropic.NotFoundError && e.error.error.type === "not_found_error");
    await assert.rejects(client.messages.stream(body({ max_tokens: -1 })).finalMessage(),
      (e) => e.status === 400);
  },
  async "abort during the stream"() {
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
