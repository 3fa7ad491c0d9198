// OpenAI's own client for Node at a gateway. usage: node openai_node.mjs URL, in a folder with its node_modules
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import OpenAI from "openai";

const version = JSON.parse(readFileSync(new URL("./node_modules/openai/package.json", import.meta.url))).version;
const suite = { suite: "openai, Node", version, cases: 0, failures: [] };
const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0, timeout: 60000 });
const messages = [{ role: "user", content: "hi" }];
const tool = { type: "function", function: { name: "lookup", parameters: { type: "object", properties: {} } } };
const ask = (fields) => client.chat.completions.create({ model: "cart", messages, ...fields });

async function test(name, work) {
  suite.cases += 1;
  try {
    await work();
  } catch (error) {
    suite.failures.push(`${name}: ${error}`);
    console.error(`${suite.suite}: ${name}: ${error}`);
  }
}

async function refused(status, word, fields) {
  await assert.rejects(ask(fields), (error) => {
    assert.equal(error.status, status);
    assert.match(error.message, word);
    assert.deepEqual(Object.keys(error.error).sort(), ["code", "message", "param", "type"]);
    return true;
  });
}

await test("models", async () => assert.deepEqual((await client.models.list()).data.map((one) => one.id), ["cart"]));
await test("an answer", async () => assert.equal((await ask({})).choices[0].message.content, "hello"));
await test("a stop", async () => assert.equal((await ask({ stop: "ll" })).choices[0].message.content, "he"));
await test("a stream", async () => {
  let text = "";
  for await (const chunk of await ask({ stream: true })) text += chunk.choices[0].delta.content ?? "";
  assert.equal(text, "hello");
});
await test("the client's own gathering of a stream", async () => {
  const runner = client.chat.completions.stream({ model: "cart", messages, stream_options: { include_usage: true } });
  const answer = await runner.finalChatCompletion();
  assert.equal(answer.choices[0].message.content, "hello");
});
await test("tools that the client runs", async () => {
  const lookup = { ...tool, function: { ...tool.function, function: () => "4", parse: JSON.parse } };
  const answer = await client.chat.completions.runTools({ model: "cart", messages, tools: [lookup] }).finalContent();
  assert.equal(answer, "it is 4");
});
await test("a stream of a tool's call", async () => {
  const answer = await client.chat.completions.stream({ model: "cart", messages, tools: [tool] }).finalChatCompletion();
  assert.equal(answer.choices[0].message.tool_calls[0].function.name, "lookup");
});
await test("n", () => refused(400, /n is '2'/, { n: 2 }));
await test("logprobs", () => refused(400, /logprobs/, { logprobs: true }));
await test("structured output", () => refused(400, /response_format/, { response_format: { type: "json_object" } }));
await test("an image", () =>
  refused(400, /messages/, { messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "x" } }] }] }));
await test("another model", () => refused(404, /gpt-9/, { model: "gpt-9" }));
await test("a refused stream", () => refused(400, /n is '2'/, { n: 2, stream: true }));
console.log(JSON.stringify([suite]));
