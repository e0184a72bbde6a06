// The official OpenAI client for Node: /v1/responses of the server at argv[2]. Run by
// test_responses_node.
import assert from "node:assert/strict";
import { base, load, run, untilIdle } from "./node_kit.mjs";

const OpenAI = load("openai");
const client = new OpenAI({ baseURL: base + "/v1", apiKey: "none", maxRetries: 0 });
const ask = (more) =>
  client.responses.create({ model: "demo", input: "What is InferFlux?", temperature: 0, max_output_tokens: 40, ...more });
const script = (text, more) => client.responses.create({ model: "echo", input: "x", script: text, ...more });
const tools = [
  {
    type: "function", name: "get_weather", strict: false,
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
];
const CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>';

await run({
  async "stream and body have the same content"() {
    const body = await ask({});
    let text = "", n = 0, last;
    for await (const e of await ask({ stream: true })) {
      assert.equal(e.sequence_number, n++);
      if (e.type === "response.output_text.delta") text += e.delta;
      last = e;
    }
    assert.ok(text.length > 0);
    assert.equal(text, body.output_text);
    assert.equal(last.type, "response." + body.status);
    assert.deepEqual(last.response.usage.output_tokens, body.usage.output_tokens);
  },
  async "a tool loop of three turns, by id and streamed"() {
    let previous, input = "Weather in Paris?", calls = [];
    for (const said of ["<think>hm</think>" + CALL, CALL, "It is 21 degrees."]) {
      let last;
      const stream = await script({ text: said, chunk: "char" }, { input, tools, stream: true, previous_response_id: previous });
      for await (const e of stream) {
        if (e.type === "response.output_item.done" && e.item.type === "function_call") calls.push(e.item);
        last = e;
      }
      previous = last.response.id;
      input = last.response.output
        .filter((o) => o.type === "function_call")
        .map((o) => ({ type: "function_call_output", call_id: o.call_id, output: "21" }));
      if (!input.length) assert.equal(last.response.output[0].content[0].text, "It is 21 degrees.");
    }
    assert.deepEqual(calls.map((c) => [c.name, c.arguments]), Array(2).fill(["get_weather", '{"city": "Paris"}']));
    assert.notEqual(calls[0].call_id, calls[1].call_id);
  },
  async "the stream helper accepts all events"() {
    const stream = client.responses.stream({ model: "echo", input: "x", tools, script: { text: "well " + CALL, chunk: "char" } });
    const kinds = new Set();
    stream.on("event", (e) => kinds.add(e.type));
    const final = await stream.finalResponse();
    assert.equal(final.output[0].content[0].text.trim(), "well");
    assert.ok(kinds.has("response.function_call_arguments.delta"));
    assert.equal(JSON.parse(final.output[1].arguments).city, "Paris");
  },
  async "a stored response is retrieved, listed and deleted"() {
    const r = await ask({});
    assert.deepEqual((await client.responses.retrieve(r.id)).output, r.output);
    const items = [];
    for await (const i of client.responses.inputItems.list(r.id)) items.push(i);
    assert.equal(items[0].content[0].text, "What is InferFlux?");
    await client.responses.delete(r.id);
    await assert.rejects(client.responses.retrieve(r.id), (e) => e.status === 404);
    await assert.rejects(ask({ previous_response_id: r.id }), (e) => e.code === "previous_response_not_found");
  },
  async "a background response is polled and streamed"() {
    const plain = await ask({});
    let r = await ask({ background: true });
    assert.deepEqual([r.status, r.background], ["queued", true]);
    while (r.status === "queued" || r.status === "in_progress") r = await client.responses.retrieve(r.id);
    assert.equal(r.output_text, plain.output_text);
    const seen = [];
    const text = { text: "one two three four five six", chunk: "char", delay_ms: 5 };
    for await (const e of await script(text, { background: true, stream: true })) {
      seen.push(e);
      if (seen.length === 14) break; // the client closes its connection
    }
    const id = seen[0].response.id;
    for await (const e of await client.responses.retrieve(id, { stream: true, starting_after: 13 })) seen.push(e);
    const whole = [];
    for await (const e of await client.responses.retrieve(id, { stream: true })) whole.push(e);
    assert.deepEqual(seen, whole);
    assert.deepEqual(whole.map((e) => e.sequence_number), [...whole.keys()]);
    assert.equal(whole.at(-1).response.output[0].content[0].text, text.text);
    const again = await client.responses.stream({ response_id: id }).finalResponse();
    assert.equal(again.output_text, text.text);
  },
  async "a background response is cancelled"() {
    const r = await script({ text: "word ".repeat(2000), chunk: "char", delay_ms: 20 }, { background: true });
    const gone = await client.responses.cancel(r.id);
    assert.deepEqual([gone.id, gone.status], [r.id, "cancelled"]);
    assert.equal((await client.responses.cancel(r.id)).status, "cancelled");
    await untilIdle();
    await assert.rejects(client.responses.cancel((await ask({})).id), (e) => e.status === 400 && /synchronous/.test(e.message));
  },
  async "errors name the parameter"() {
    await assert.rejects(ask({ temperature: 9 }), (e) => e.status === 400 && e.param === "temperature");
    await assert.rejects(ask({ model: "nobody" }), (e) => e.status === 404 && e.code === "model_not_found");
  },
});
