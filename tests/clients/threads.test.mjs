// @mastra/client-js: messages to a thread that is busy, and tools of the page in runs that it only watches.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";

import { Chat } from "@ai-sdk/react";
import { MastraClient } from "@mastra/client-js";
import { DefaultChatTransport } from "ai";
import { z } from "zod";

const base = process.env.BASE_URL;
const agentId = "conformance";
const client = new MastraClient({ baseUrl: base });
const agent = client.getAgent(agentId);
const place = () => ({ threadId: `t-${randomUUID()}`, resourceId: `ada-${randomUUID()}` });
const memoryOf = ({ threadId, resourceId }) => ({ thread: threadId, resource: resourceId });
const stored = async ({ threadId, resourceId }) => (await client.listThreadMessages(threadId, { agentId, resourceId })).messages;
const textOf = (message) => message.content.parts.filter((part) => part.type === "text").map((part) => part.text).join("");
const said = (found) => found.filter((c) => c.type === "text-delta").map((c) => c.payload.text).join("");
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function until(look, what) {
  for (let tries = 0; tries < 200; tries++) {
    const found = await look();
    if (found) return found;
    await pause(100);
  }
  assert.fail(`waited in vain for ${what}`);
}

async function watch(at) {
  await agent.generate("say hi", { memory: memoryOf(at) });
  const subscription = await agent.subscribeToThread(at);
  const found = [];
  const reading = subscription.processDataStream({ onChunk: (chunk) => void found.push(chunk) });
  const end = async () => {
    subscription.unsubscribe();
    await reading;
  };
  return { found, end };
}

test("a message to a busy thread is answered by the running turn, and a queued one after it", async () => {
  const at = place();
  const { found, end } = await watch(at);
  const first = await agent.sendMessage({ message: "slow 40 100", ...at });
  await until(() => said(found) !== "", "the first word");
  await pause(1200);
  const second = await agent.sendMessage({ message: "say meanwhile", ...at });
  const third = await agent.queueMessage({ message: "say afterwards", ...at });
  assert.equal(second.runId, first.runId);
  assert.notEqual(third.runId, first.runId);
  await until(() => said(found).endsWith("afterwards"), "all answers");
  await until(() => found.filter((chunk) => chunk.type === "finish").length === 2, "both ends");
  assert.deepEqual([...new Set(found.map((chunk) => chunk.runId))], [first.runId, third.runId]);
  await end();
  const messages = await stored(at);
  assert.deepEqual(
    messages.slice(2).map((m) => [m.role, textOf(m).slice(0, 14)]),
    [
      ["user", "slow 40 100"],
      ["assistant", "w1 w2 w3 w4 w5"],
      ["user", "say meanwhile"],
      ["assistant", "meanwhile"],
      ["user", "say afterwards"],
      ["assistant", "afterwards"],
    ],
  );
  assert.equal(messages[4].id, second.signal.id);
});

test("a page in the middle of its answer sees the words that follow, and after a reload each in its place", async () => {
  const id = `chat-${randomUUID()}`;
  const chat = new Chat({ id, transport: new DefaultChatTransport({ api: `${base}/api/chat`, body: { resourceId: "ada", agentId } }) });
  await chat.sendMessage({ text: "say hi" });
  const sending = chat.sendMessage({ text: "slow 30 100" });
  await pause(1500);
  await agent.sendMessage({ message: "say meanwhile", threadId: id, resourceId: "ada" });
  await sending;
  assert.equal(chat.status, "ready", String(chat.error));
  const texts = chat.messages.at(-1).parts.filter((part) => part.type === "text").map((part) => part.text);
  assert.deepEqual(texts.slice(1), ["meanwhile"]);
  const { messages } = await (await fetch(`${base}/api/chat/${id}`)).json();
  assert.deepEqual(messages.map((m) => m.role), ["user", "assistant", "user", "assistant", "user", "assistant"]);
  assert.equal(messages[3].id, chat.messages.at(-1).id);
  await chat.sendMessage({ text: "recall" });
  assert.match(chat.messages.at(-1).parts.at(-1).text, /"user:say meanwhile","assistant:meanwhile"\]$/);
});

test("of many messages to a thread where turns come and go none is lost and none is answered twice", async () => {
  const at = place();
  await agent.generate("say hi", { memory: memoryOf(at) });
  const words = Array.from({ length: 10 }, (_, n) => `word${n}`);
  const turns = [1, 2].map((n) => agent.generate(`slow ${n * 12} 100`, { memory: memoryOf(at) }));
  for (const word of words) {
    await pause(250);
    await agent.sendMessage({ message: `say ${word}`, ...at });
  }
  await Promise.all(turns);
  const asked = (messages) => messages.filter((m) => m.role === "user").map(textOf);
  const all = await until(async () => {
    const messages = await stored(at);
    return asked(messages).length === words.length + 3 && messages.at(-1).role === "assistant" && messages;
  }, "all messages");
  await pause(2000);
  assert.deepEqual((await stored(at)).map((m) => m.id), all.map((m) => m.id));
  assert.deepEqual(asked(all).filter((text) => text.startsWith("say w")).sort(), words.map((word) => `say ${word}`));
  const answers = all.filter((m) => m.role === "assistant").map(textOf);
  for (const word of words) assert.ok(answers.filter((text) => text === word).length <= 1, word);
});

const colors = (ran, result = { ok: 1 }) => ({
  change_color: {
    id: "change_color",
    description: "Changes the colour of the page.",
    inputSchema: z.object({ color: z.string() }),
    execute: async (args) => {
      ran.push(args);
      if (result instanceof Error) throw result;
      return result;
    },
  },
});
const onlyCall = async (at) => {
  const calls = (await stored(at)).flatMap((m) => m.content.parts).filter((p) => p.type === "tool-invocation");
  assert.equal(calls.length, 1);
  return calls[0].toolInvocation;
};

for (const method of ["sendMessage", "queueMessage", "sendSignal"]) {
  test(`a tool of the page runs in a run that ${method} started and the page watches`, async () => {
    const at = place();
    const { found, end } = await watch(at);
    const ran = [];
    const message = 'tool change_color {"color":"red"}';
    const given = method === "sendSignal" ? { signal: { type: "user-message", contents: message } } : { message };
    await agent[method]({ ...given, ...at, ifIdle: { streamOptions: { clientTools: colors(ran) } } });
    await until(() => said(found).includes("change_color returned"), "the answer to the outcome");
    assert.deepEqual(ran, [{ color: "red" }]);
    assert.match(said(found), /Tool change_color returned \{"ok":1\}/);
    await until(async () => (await onlyCall(at)).state === "result", "the stored outcome");
    await end();
    const messages = await stored(at);
    assert.deepEqual(messages.map((m) => m.role), ["user", "assistant", "user", "assistant"]);
    assert.equal(textOf(messages.at(-1)), 'Tool change_color returned {"ok":1}');
  });
}

test("a tool of the page that fails is told to the model", async () => {
  const at = place();
  const { found, end } = await watch(at);
  const options = { clientTools: colors([], new Error("no paint")) };
  await agent.sendMessage({ message: 'tool change_color {"color":"red"}', ...at, ifIdle: { streamOptions: options } });
  await until(() => /no paint/.test(said(found)), "the answer to the failure");
  await end();
  assert.equal((await agent.generate("say fine", { memory: memoryOf(at) })).text, "fine");
});

test("a second call of the page's tools in the same conversation works too", async () => {
  const at = place();
  const { found, end } = await watch(at);
  const ran = [];
  for (const color of ["red", "blue"]) {
    const options = { clientTools: colors(ran, { color }) };
    await agent.sendMessage({ message: `tool change_color {"color":"${color}"}`, ...at, ifIdle: { streamOptions: options } });
    await until(() => said(found).includes(`{"color":"${color}"}`), `the answer for ${color}`);
    await until(async () => (await stored(at)).length === (color === "red" ? 4 : 6), "the stored turn");
  }
  await end();
  assert.deepEqual(ran, [{ color: "red" }, { color: "blue" }]);
});
