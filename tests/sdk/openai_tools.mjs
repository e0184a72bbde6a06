// Tools with the official OpenAI client for Node: the streaming helper and its tool runner. Run by
// test_openai_tools_node.
import assert from "node:assert/strict";
import { base, load, run } from "./node_kit.mjs";

const OpenAI = load("openai").default ?? load("openai");
const client = new OpenAI({ baseURL: base + "/v1", apiKey: "none", maxRetries: 0 });
const parameters = { type: "object", properties: { city: { type: "string" }, days: { type: "integer" } } };
const tools = [{ type: "function", function: { name: "get_weather", parameters } }];
const messages = [{ role: "user", content: "How is the weather in Oslo and in Rome?" }];
const call = (city) =>
  `<tool_call>\n{"name": "get_weather", "arguments": {"city": "${city}", "days": 2}}\n</tool_call>\n`;
const both = "<think>\nTwo.\n</think>\n\nI look.\n" + call("Oslo") + call("Rómá 😀");
const body = (text, more) => ({ model: "qwen", messages, tools, script: { text, chunk: "char" }, ...more });

function check(message) {
  assert.equal(message.content, "I look.");
  assert.equal(message.reasoning_content, "Two.");
  assert.deepEqual(message.tool_calls.map((c) => JSON.parse(c.function.arguments)),
    [{ city: "Oslo", days: 2 }, { city: "Rómá 😀", days: 2 }]);
  assert.ok(message.tool_calls.every((c) => c.type === "function" && c.id.startsWith("call_")));
}

const tests = {
  async "a body has calls"() {
    const r = await client.chat.completions.create(body(both));
    check(r.choices[0].message);
    assert.equal(r.choices[0].finish_reason, "tool_calls");
  },
  async "the stream helper assembles the message"() {
    const done = [];
    const stream = client.chat.completions.stream(body(both));
    stream.on("tool_calls.function.arguments.done", (e) => done.push([e.index, e.name, e.arguments]));
    const final = await stream.finalChatCompletion();
    assert.deepEqual(final.choices[0].message.tool_calls.map((c) => JSON.parse(c.function.arguments).city),
      ["Oslo", "Rómá 😀"]);
    assert.equal(final.choices[0].finish_reason, "tool_calls");
    assert.equal(done.length, 2);
    assert.equal(done[1][1], "get_weather");
  },
  async "the tool runner loops until there is text"() {
    for (const stream of [false, true]) {
      const asked = [], turns = [call("Oslo"), call("Rome"), "Rain and sun."];
      let n = 0;
      // Each turn generates the next line of the script.
      const own = new OpenAI({ baseURL: base + "/v1", apiKey: "none", maxRetries: 0,
        fetch: (url, init) => {
          const sent = JSON.parse(init.body);
          sent.script = { text: turns[n++], chunk: "char" };
          const headers = new Headers(init.headers);
          headers.delete("content-length");
          return fetch(url, { ...init, headers, body: JSON.stringify(sent) });
        } });
      const weather = { type: "function", function: { name: "get_weather", parameters,
        parse: JSON.parse, function: ({ city }) => (asked.push(city), `${city}: fine`) } };
      const runner = own.chat.completions.runTools({ model: "qwen", messages, tools: [weather], stream });
      assert.equal(await runner.finalContent(), "Rain and sun.");
      assert.deepEqual(asked, ["Oslo", "Rome"]);
      assert.equal(n, 3);
    }
  },
  async "a stream with a broken call is an error, and no tool runs"() {
    const open = 'Try. <tool_call>\n{"name": "get_weather", "arguments": {"city": ';
    const isBroken = (e) => e instanceof OpenAI.APIError && e.code === "incomplete_tool_call";
    for (const text of [open, open + "oops}} and on."]) {
      const whole = await client.chat.completions.create(body(text));
      assert.equal(whole.choices[0].message.tool_calls, undefined);
      assert.equal(whole.choices[0].message.content, text);
      assert.equal(whole.choices[0].finish_reason, text === open ? "length" : "stop");
      let content = "", finish = null;
      await assert.rejects(async () => {
        for await (const c of await client.chat.completions.create(body(text, { stream: true }))) {
          content += c.choices[0].delta.content ?? "";
          finish ??= c.choices[0].finish_reason;
        }
      }, isBroken);
      assert.deepEqual([content, finish], [text, null]);
      const done = [], ran = [];
      const stream = client.chat.completions.stream(body(text));
      stream.on("tool_calls.function.arguments.done", (e) => done.push(e));
      await assert.rejects(stream.finalChatCompletion(), isBroken);
      const weather = { type: "function", function: { name: "get_weather", parameters,
        parse: (s) => (ran.push(s), {}), function: () => "fine" } };
      const runner = client.chat.completions.runTools(body(text, { tools: [weather], stream: true }));
      await assert.rejects(runner.finalContent(), isBroken);
      assert.deepEqual([done, ran], [[], []]);
    }
  },
  async "an unmet tool_choice is an error"() {
    await assert.rejects(client.chat.completions.create(body("No.", { tool_choice: "required" })),
      (e) => e.status === 422 && e.param === "tool_choice");
    await assert.rejects(client.chat.completions.create(body("", { tools: [], tool_choice: "required" })),
      (e) => e.status === 400 && e.param === "tool_choice");
    await assert.rejects(async () => {
      const s = await client.chat.completions.create(body("No.", { tool_choice: "required", stream: true }));
      for await (const _ of s);
    }, (e) => /tool_choice/.test(e.message));
  },
};

await run(tests);
