// Ollama's official client for Node against the server at argv[2]. Run by test_ollama_node.
import assert from "node:assert/strict";
import { base, load, run, untilIdle } from "./node_kit.mjs";

const { Ollama } = load("ollama");
const client = new Ollama({ host: base });
const messages = [{ role: "user", content: "What is InferFlux?" }];
const options = { temperature: 0, num_predict: 40 };
const long = { temperature: 0, num_predict: 400 };
const ask = (more) => client.chat({ model: "demo", messages, options, ...more });
const script = (text, more) => client.chat({ model: "echo", messages, script: text, ...more });

async function gather(stream) {
  let text = "";
  for await (const part of stream) text += part.message.content;
  return text;
}

const tools = [{ type: "function", function: { name: "get_weather", description: "The weather of a city.",
  parameters: { type: "object", properties: { city: { type: "string" } } } } }];
const call = (city) =>
  `<tool_call>\n${JSON.stringify({ name: "get_weather", arguments: { city } })}\n</tool_call>`;

const tests = {
  async "reasoning and calls, in a body and in lines"() {
    const text = `<think>\nHm.\n</think>\n\nLet me see. ${call("Zürich")}`;
    const whole = (await script(text, { tools })).message;
    assert.deepEqual([whole.thinking, whole.content], ["Hm.", "Let me see."]);
    assert.deepEqual(whole.tool_calls[0].function.arguments, { city: "Zürich" });
    for (const chunk of ["token", "char", "all"]) {
      const said = { thinking: "", content: "", calls: [] };
      for await (const part of await script({ text, chunk }, { tools, stream: true })) {
        said.thinking += part.message.thinking ?? "";
        said.content += part.message.content;
        said.calls.push(...(part.message.tool_calls ?? []));
      }
      assert.deepEqual([said.thinking, said.content.trim()], ["Hm.", "Let me see."]);
      assert.deepEqual(said.calls.map((c) => c.function.arguments), [{ city: "Zürich" }]);
    }
  },
  async "a tool loop of three turns"() {
    const turns = [call("Rome"), call("Oslo") + call("Bern"), "Sunny everywhere."];
    const history = [...messages], asked = [];
    for (;;) {
      const { message } = await client.chat({ model: "echo", messages: history, tools, script: turns });
      history.push(message);
      if (!message.tool_calls?.length) break;
      for (const c of message.tool_calls) {
        asked.push(c.function.arguments.city);
        history.push({ role: "tool", tool_name: c.function.name, content: "sunny" });
      }
    }
    assert.deepEqual(asked, ["Rome", "Oslo", "Bern"]);
    assert.equal(history.at(-1).content, "Sunny everywhere.");
  },
  async "stream and body have the same content"() {
    const whole = await ask({});
    assert.ok(whole.message.content.length > 0 && whole.done && whole.eval_count > 0);
    assert.equal(await gather(await ask({ stream: true })), whole.message.content);
  },
  async "a prompt is completed"() {
    const r = await client.generate({ model: "demo", prompt: messages[0].content, options });
    assert.equal(r.response, (await ask({})).message.content);
  },
  async "a stop string ends the response"() {
    const r = await script("alpha beta gamma", { options: { stop: ["gamma"] } });
    assert.deepEqual([r.message.content, r.done_reason], ["alpha beta ", "stop"]);
  },
  async "text is returned unchanged"() {
    const text = "日本語 🙂 and \"quotes\"\n";
    assert.equal(await gather(await script({ text, chunk: "char" }, { stream: true })), text);
  },
  async "an idle stream is kept alive between lines"() {
    const warned = [], warn = console.warn;
    console.warn = (...what) => warned.push(what);
    assert.equal(await gather(await script({ text: "late", delay_ms: 300 }, { stream: true })), "late");
    console.warn = warn;
    assert.deepEqual(warned, []);
  },
  async "the format of a schema is enforced"() {
    const format = { type: "object", required: ["stars"], properties: { stars: { enum: [1, 2, 3] } } };
    assert.ok([1, 2, 3].includes(JSON.parse((await ask({ format, options: long })).message.content).stars));
    assert.ok(JSON.parse(await gather(await ask({ format, options: long, stream: true }))).stars);
  },
  async "errors are readable"() {
    await assert.rejects(ask({ model: "nobody" }), (e) => e.status_code === 404 && /nobody/.test(e.message));
    await assert.rejects(ask({ format: { type: "text" } }), (e) => e.status_code === 400 && /format/.test(e.message));
    await assert.rejects(ask({ options: { top_p: 7 }, stream: true }), (e) => e.status_code === 400);
  },
  async "abort during the stream"() {
    const stream = await script({ text: "word ".repeat(2000), delay_ms: 20 }, { stream: true });
    let n = 0;
    await assert.rejects(async () => {
      for await (const _ of stream) if (++n === 3) client.abort();
    }, { name: "AbortError" });
    await untilIdle();
  },
  async "models"() {
    assert.deepEqual((await client.list()).models.map((m) => m.name), ["demo", "echo"]);
    assert.deepEqual((await client.ps()).models.map((m) => m.name), ["demo", "echo"]);
    assert.ok((await client.show({ model: "demo" })).capabilities.includes("completion"));
    assert.ok((await client.version()).version);
  },
};

await run(tests);
