// The Vercel AI SDK against the server at argv[2]: its OpenAI provider (Responses, which is its
// default, and chats) and its Anthropic provider. Run by test_ai_node.
import assert from "node:assert/strict";
import { base, load, run, untilIdle } from "./node_kit.mjs";

const { generateObject, generateText, streamObject, streamText, stepCountIs, tool, jsonSchema } = load("ai");
const { z } = load("zod");
const { createOpenAI } = load("@ai-sdk/openai");
const { createAnthropic } = load("@ai-sdk/anthropic");

// Texts that the script model generates, one per request; the provider's `fetch` option adds them.
let scripts = [];
const bodies = [];
async function fetchScripted(url, init) {
  const body = JSON.parse(init.body);
  bodies.push(body);
  if (scripts.length) body.script = { text: scripts.shift(), chunk: "char" };
  return fetch(url, { ...init, body: JSON.stringify(body) });
}

const openai = createOpenAI({ baseURL: base + "/v1", apiKey: "none", fetch: fetchScripted });
const anthropic = createAnthropic({ baseURL: base + "/v1", apiKey: "none", fetch: fetchScripted });
const ways = { responses: (id) => openai(id), chat: (id) => openai.chat(id), anthropic: (id) => anthropic(id) };
const CALL = (city) => `<tool_call>\n{"name": "weather", "arguments": {"city": "${city}"}}\n</tool_call>`;

function tools(asked) {
  return {
    weather: tool({
      description: "Weather of a place.",
      inputSchema: jsonSchema({ type: "object", properties: { city: { type: "string" } }, required: ["city"] }),
      execute: async ({ city }) => (asked.push(city), { city, degrees: 21 }),
    }),
  };
}

const tests = {};
for (const [name, model] of Object.entries(ways)) {
  tests[`${name}: a text, whole and streamed`] = async () => {
    scripts = [];
    const wish = { model: model("demo"), prompt: "What is InferFlux?", temperature: 0, maxOutputTokens: 60, maxRetries: 0 };
    const whole = await generateText(wish);
    assert.ok(whole.text.trim().length > 0);
    assert.ok(whole.usage.outputTokens > 0);
    const stream = streamText(wish);
    let text = "";
    for await (const piece of stream.textStream) text += piece;
    assert.equal(text, whole.text);
    assert.equal(await stream.finishReason, whole.finishReason);
  };
  tests[`${name}: a loop of three turns calls tools`] = async () => {
    const asked = [];
    scripts = [CALL("Paris"), CALL("Rome"), "21 in both."];
    const r = await generateText({ model: model("echo"), prompt: "Weather in Paris and Rome?", tools: tools(asked), stopWhen: stepCountIs(5), maxRetries: 0 });
    assert.equal(r.text, "21 in both.");
    assert.equal(r.steps.length, 3);
    assert.deepEqual(asked, ["Paris", "Rome"]);
    assert.equal(r.finishReason, "stop");
    assert.equal(r.steps[0].finishReason, "tool-calls");
  };
  tests[`${name}: the same, streamed, with thoughts and two calls at once`] = async () => {
    const asked = [], thoughts = [];
    scripts = ["<think>both</think>" + CALL("Paris") + "\n" + CALL("Rome"), "21 in both."];
    const r = streamText({ model: model("echo"), prompt: "Weather in Paris and Rome?", tools: tools(asked), stopWhen: stepCountIs(5), maxRetries: 0 });
    const kinds = new Set();
    for await (const part of r.fullStream) {
      assert.notEqual(part.type, "error", JSON.stringify(part));
      kinds.add(part.type);
      if (part.type === "reasoning-delta") thoughts.push(part.text);
    }
    assert.equal(await r.text, "21 in both.");
    assert.deepEqual(asked.sort(), ["Paris", "Rome"]);
    assert.ok(kinds.has("tool-input-delta"));
    if (name === "anthropic") assert.equal(thoughts.join(""), "both");
    assert.equal((await r.steps).length, 2);
  };
  // The SDK reports an incomplete call to the model as a failed one, which the second script answers.
  tests[`${name}: a broken call is not executed`] = async () => {
    const open = 'Try. <tool_call>\n{"name": "weather", "arguments": {"city": ';
    for (const text of [open, open + "oops}} and on.", open + '"Rome"} oops']) {
      const asked = [], errors = [];
      const wish = { model: model("echo"), prompt: "x", tools: tools(asked), stopWhen: stepCountIs(3), maxRetries: 0 };
      scripts = [text];
      const whole = await generateText(wish);
      assert.equal(whole.finishReason, text === open ? "length" : "stop");
      assert.deepEqual([whole.toolCalls, whole.steps.length], [[], 1]);
      assert.ok(whole.text.includes(text.slice(5)), whole.text);
      scripts = [text, "done"];
      const r = streamText({ ...wish, onError: ({ error }) => errors.push(error) });
      let executed = 0;
      for await (const part of r.fullStream) executed += part.type === "tool-result";
      assert.deepEqual([asked, executed], [[], 0]);
      const [first] = await r.steps;
      // Anthropic's protocol has a stop reason for it.
      if (name === "anthropic") assert.equal(first.finishReason, "length");
      else assert.match(JSON.stringify(errors), /incomplete_tool_call/);
    }
  };
  // Without the constraint the model writes no JSON.
  tests[`${name}: an object satisfies its schema`] = async () => {
    scripts = [];
    const schema = z.object({ sentiment: z.enum(["good", "bad"]), stars: z.union([z.literal(1), z.literal(2)]), isPublic: z.boolean() });
    const wish = { model: model("demo"), schema, prompt: "How was it?", temperature: 0, maxOutputTokens: 200, maxRetries: 0, providerOptions: { anthropic: { structuredOutputMode: "outputFormat" } } };
    const { object } = await generateObject(wish);
    assert.ok(schema.safeParse(object).success, JSON.stringify(object));
    const stream = streamObject(wish);
    let last;
    for await (const partial of stream.partialObjectStream) last = partial;
    assert.deepEqual([last, await stream.object], [object, object]);
  };
  tests[`${name}: an error has its status`] = async () => {
    scripts = [];
    await assert.rejects(generateText({ model: model("nobody"), prompt: "x", maxRetries: 0 }), (e) => e.statusCode === 404);
  };
}

tests["responses: later turns name what was said, and the server knows it"] = async () => {
  bodies.length = 0;
  scripts = ["<think>hm</think>Let me see. " + CALL("Paris"), "21."];
  await generateText({ model: openai("echo"), prompt: "Weather?", tools: tools([]), stopWhen: stepCountIs(3), maxRetries: 0 });
  assert.ok(bodies[1].input.some((i) => i.type === "item_reference"), JSON.stringify(bodies[1].input));
  scripts = [CALL("Paris"), "21."];
  const r = await generateText({
    model: openai("echo"), prompt: "Weather?", tools: tools([]), stopWhen: stepCountIs(3), maxRetries: 0,
    providerOptions: { openai: { store: false } },
  });
  assert.ok(bodies[3].input.some((i) => i.type === "function_call"), JSON.stringify(bodies[3].input));
  assert.equal(r.text, "21.");
};
tests["responses: goes on by id"] = async () => {
  scripts = ["I am here."];
  const first = await generateText({ model: openai("echo"), prompt: "Hello!", maxRetries: 0 });
  scripts = ["Still here."];
  const next = await generateText({
    model: openai("echo"), prompt: "And now?", maxRetries: 0,
    providerOptions: { openai: { previousResponseId: first.providerMetadata.openai.responseId } },
  });
  assert.equal(next.text, "Still here.");
  assert.ok(next.usage.inputTokens > first.usage.inputTokens);
};
tests["nothing stays behind"] = untilIdle;

await run(tests);
