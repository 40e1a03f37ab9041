// A guardrail that stops a run: what the published page makes of the stream, and what is left of the turn.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";

import { Chat } from "@ai-sdk/react";
import { toAISdkMessages } from "@mastra/ai-sdk/ui";
import { MastraClient } from "@mastra/client-js";
import { DefaultChatTransport, validateUIMessages } from "ai";
import { DefaultChatTransport as TransportV5, readUIMessageStream as readV5 } from "ai-v5";
import { DefaultChatTransport as TransportV6, readUIMessageStream as readV6 } from "ai-v6";

const base = process.env.BASE_URL;
const client = new MastraClient({ baseUrl: base });
const text = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text).join("");
const tripwire = (message) => message.parts.filter((part) => part.type === "data-tripwire");

function page(agentId, id = `guard-${randomUUID()}`) {
  const seen = { errors: [], data: [], finished: [] };
  const chat = new Chat({
    id,
    transport: new DefaultChatTransport({ api: `${base}/api/chat`, body: { resourceId: "ada", agentId } }),
    onError: (error) => seen.errors.push(error),
    onData: (part) => seen.data.push(part),
    onFinish: (end) => seen.finished.push(end),
  });
  return Object.assign(chat, { seen });
}

// The chunks as they are on the wire.
async function chunks(agentId, said) {
  const answer = await fetch(`${base}/api/chat`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ id: `guard-${randomUUID()}`, resourceId: "ada", agentId, messages: [{ id: randomUUID(), role: "user", parts: [{ type: "text", text: said }] }] }),
  });
  const events = (await answer.text()).split("\n\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
  assert.equal(events.pop(), "[DONE]");
  return events.map((event) => JSON.parse(event));
}

async function stored(id) {
  const answer = await fetch(`${base}/api/chat/${id}`);
  if (answer.status === 404) return [];
  const { messages } = await answer.json();
  await validateUIMessages({ messages });
  return messages;
}

const CASES = [
  // what is said, the reason, what the page may have seen of the answer before
  ["say forbidden things", "not asked here", /^$/],
  ["say one two secret three", "not said here", /^(one two )?$/],
  ['tool get_weather {"city":"Oslo"}', "not told here", /^(Tool get_weather returned .*)?$/],
];

for (const agentId of ["guarded", "held"]) {
  for (const [said, reason, before] of CASES) {
    test(`the page of agent ${agentId} shows why "${said}" was stopped and goes on`, async () => {
      const chat = page(agentId);
      await chat.sendMessage({ text: "say hello" });
      await chat.sendMessage({ text: said });
      assert.equal(chat.status, "ready", String(chat.error));
      assert.deepEqual(chat.seen.errors, []);
      assert.deepEqual(chat.seen.data.map((part) => [part.type, part.data]), [["data-tripwire", { reason, processorId: "words" }]]);
      const answer = chat.messages.at(-1);
      assert.equal(answer.role, "assistant");
      assert.equal(tripwire(answer).length, 1);
      assert.match(text(answer), agentId === "held" ? /^$/ : before);
      assert.equal(chat.seen.finished.at(-1).finishReason, "other");
      // Every block that was opened is closed, and no tool part is left half way.
      assert.ok(answer.parts.every((part) => part.type !== "text" || part.state === "done"));
      assert.ok(answer.parts.every((part) => !part.type.startsWith("tool-") || part.state === "output-available"));
      assert.deepEqual((await stored(chat.id)).map(text), ["say hello", "hello"]);

      // The page still has the stopped turn and sends it along; the next one must work all the same.
      await chat.sendMessage({ text: "say fine" });
      assert.equal(chat.status, "ready", String(chat.error));
      assert.equal(text(chat.messages.at(-1)), "fine");
      const kept = await stored(chat.id);
      assert.deepEqual(kept.map(text), ["say hello", "hello", "say fine", "fine"]);
      const { messages } = await client.listThreadMessages(chat.id, { agentId });
      assert.deepEqual(toAISdkMessages(messages, { version: "v7" }).map((m) => m.id), kept.map((m) => m.id));
    });

    test(`the chunks of "${said}" to agent ${agentId} are in the order that pages enforce`, async () => {
      const found = await chunks(agentId, said);
      const types = found.map((chunk) => chunk.type);
      const end = types.indexOf("data-tripwire");
      assert.deepEqual(found.at(-1), { type: "finish", finishReason: "other" });
      assert.deepEqual(types.slice(end + 1).filter((type) => type !== "finish-step"), ["finish"]);
      assert.equal(types.filter((type) => type === "start-step").length, types.filter((type) => type === "finish-step").length);
      assert.equal(types.filter((type) => type === "text-start").length, types.filter((type) => type === "text-end").length);
      assert.ok(types.lastIndexOf("text-end") < end);
      assert.ok(!types.includes("error"));
      assert.ok(!JSON.stringify(found).includes("secret"));
    });
  }
}

test("regenerate after a stopped turn answers the question before it", async () => {
  const chat = page("guarded");
  await chat.sendMessage({ text: "say hello" });
  await chat.sendMessage({ text: "say one two secret three" });
  await chat.regenerate();
  assert.equal(chat.status, "ready", String(chat.error));
  assert.equal(tripwire(chat.messages.at(-1)).length, 1);
  assert.deepEqual((await stored(chat.id)).map(text), ["say hello", "hello"]);
});

test("a model that fails is an error and no tripwire", async () => {
  const chat = page("guarded");
  await chat.sendMessage({ text: "fail no capacity" });
  assert.equal(chat.status, "error");
  assert.match(String(chat.error.message), /no capacity/);
  assert.deepEqual(chat.seen.data, []);
  const types = (await chunks("guarded", "fail no capacity")).map((chunk) => chunk.type);
  assert.deepEqual(types, ["start", "start-step", "error", "finish-step", "finish"]);
});

for (const [version, Transport, read] of [["5", TransportV5, readV5], ["6", TransportV6, readV6]]) {
  test(`version ${version} of the page library reads a stopped answer too`, async () => {
    for (const [said, reason] of CASES) {
      const transport = new Transport({ api: `${base}/api/chat`, body: { resourceId: "ada", agentId: "guarded" } });
      const messages = [{ id: randomUUID(), role: "user", parts: [{ type: "text", text: said }] }];
      const stream = await transport.sendMessages({ chatId: `guard-${randomUUID()}`, trigger: "submit-message", messages });
      let last;
      for await (const message of read({ stream })) last = message;
      assert.deepEqual(tripwire(last).map((part) => part.data.reason), [reason]);
    }
  });
}

test("agent streams and generate of @mastra/client-js tell the tripwire", async () => {
  const agent = client.getAgent("guarded");
  const memory = { thread: `guard-${randomUUID()}`, resource: "ada" };
  const found = [];
  await (await agent.stream("say one two secret three", { memory })).processDataStream({ onChunk: async (chunk) => void found.push(chunk) });
  assert.equal(found.at(-1).type, "tripwire");
  assert.equal(found.at(-1).payload.reason, "not said here");
  const answer = await agent.generate("say forbidden things", { memory });
  assert.equal(answer.tripwire.reason, "not asked here");
  assert.equal(answer.text, "");
});
