// Shared parts of the tests of Node clients: `node TEST.mjs URL MODULES`, as tests/support/sdk.py runs them.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

export const base = process.argv[2];
export const load = createRequire(process.argv[3] + "/");

// Waits until no request runs.
export async function untilIdle() {
  for (let i = 0; ; i++) {
    const text = await (await fetch(base + "/metrics")).text();
    if (/^inferflux_requests_running 0$/m.test(text)) break;
    assert.ok(i < 500, "the request still runs");
    await new Promise((r) => setTimeout(r, 10));
  }
}

// Runs { "test name": async function, ... } and ends the process.
export async function run(tests) {
  let failed = 0;
  for (const [name, fn] of Object.entries(tests)) {
    try {
      await fn();
      console.log("ok  ", name);
    } catch (e) {
      failed++;
      console.log("FAIL", name, e);
    }
  }
  console.log(`${Object.keys(tests).length - failed} passed, ${failed} failed`);
  process.exit(failed ? 1 : 0);
}
