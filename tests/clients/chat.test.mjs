// useChat's own chat class (the hook only renders it), its transport and its validation, against a running server.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";

import { Chat } from "@ai-sdk/react";
import { toAISdkMessages } from "@mastra/ai-sdk/ui";
import { MastraClient } from "@mastra/client-js";
import {
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
  readUIMessageStream,
  validateUIMessages,
} from "ai";

const base = process.env.BASE_URL;
const client = new MastraClient({ baseUrl: base });

function chat({ onlyNew = false, agentId = "conformance", messages, id = `chat-${randomUUID()}`, ...more } = {}) {
  const errors = [];
  const transport = new DefaultChatTransport({
    api: `${base}/api/chat`,
    body: { resourceId: "ada", agentId },
    ...(onlyNew && {
      prepareSendMessagesRequest: ({ messages, id, trigger, messageId }) => ({
        body: {
          messages: messages.slice(-1),
          memory: { thread: id, resource: "ada" },
          agentId,
          trigger,
          messageId,
        },
      }),
    }),
  });
  const made = new Chat({ id, messages, transport, onError: (error) => errors.push(error), ...more });
  made.errors = errors;
  return made;
}

const text = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text).join("");
const tool = (message) => message.parts.findLast((part) => part.type.startsWith("tool-"));

async function settled(chat, done, what) {
  for (let tries = 0; tries < 200; tries++) {
    if ((chat.status === "ready" || chat.status === "error") && done()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.fail(`${what}: ${chat.status} ${JSON.stringify(chat.messages.at(-1))} ${chat.errors}`);
}

// What a page compares after a reload: everything but the state of finished texts and what only storage adds.
const brief = (messages) =>
  messages.map(({ id, role, parts }) => ({
    id,
    role,
    parts: parts
      .filter((part) => part.type !== "step-start")
      .map(({ type, text, state, input, output, errorText, toolCallId, mediaType, filename }) => ({
        type,
        text,
        state: type === "text" || type === "reasoning" ? undefined : state,
        input,
        output,
        errorText,
        toolCallId,
        mediaType,
        filename,
      })),
  }));

async function reloaded(id) {
  const answer = await fetch(`${base}/api/chat/${id}`);
  assert.equal(answer.status, 200);
  const { messages } = await answer.json();
  await validateUIMessages({ messages });
  return messages;
}

async function converted(id) {
  const { messages } = await client.listThreadMessages(id, { agentId: "conformance" });
  const page = toAISdkMessages(messages, { version: "v7" });
  await validateUIMessages({ messages: page });
  return page;
}

async function sameAfterReload(chat) {
  assert.deepEqual(brief(await reloaded(chat.id)), brief(chat.messages));
  assert.deepEqual(brief(await converted(chat.id)), brief(chat.messages));
}

for (const onlyNew of [false, true]) {
  test(`a conversation reads the same after a reload (only new messages: ${onlyNew})`, async () => {
    const page = chat({ onlyNew });
    for (const said of ["say A raincoat and boots.", "think yes", 'tool get_weather {"city":"Oslo"}', "tool broken_tool {}"]) {
      await page.sendMessage({ text: said });
      assert.equal(page.status, "ready", String(page.error));
    }
    await page.sendMessage({ text: "recall" });
    assert.match(text(page.messages.at(-1)), /^SEEN \["user:say A raincoat/);
    assert.equal(page.messages.length, 10);
    await sameAfterReload(page);
  });

  test(`a client tool's outcome goes back by itself (only new messages: ${onlyNew})`, async () => {
    const page = chat({ onlyNew, sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls });
    await page.sendMessage({ text: 'tool pick_color {"options":["red","blue"]}' });
    const call = tool(page.messages.at(-1));
    assert.equal(call.state, "input-available");
    await page.addToolOutput({ tool: "pick_color", toolCallId: call.toolCallId, output: { color: "red" } });
    await settled(page, () => text(page.messages.at(-1)) !== "", "the answer after the outcome");
    assert.equal(text(page.messages.at(-1)), 'Tool pick_color returned {"color":"red"}');
    assert.equal(page.messages.length, 2);
    await sameAfterReload(page);
  });

  test(`a failed client tool is told to the model (only new messages: ${onlyNew})`, async () => {
    const page = chat({ onlyNew, sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls });
    await page.sendMessage({ text: 'tool pick_color {"options":["red"]}' });
    const { toolCallId } = tool(page.messages.at(-1));
    await page.addToolOutput({ tool: "pick_color", toolCallId, state: "output-error", errorText: "no colours" });
    await settled(page, () => text(page.messages.at(-1)) !== "", "the answer after the failure");
    assert.match(text(page.messages.at(-1)), /no colours/);
    await sameAfterReload(page);
  });

  for (const approved of [true, false]) {
    test(`an approval (${approved}) continues the message (only new messages: ${onlyNew})`, async () => {
      const page = chat({ onlyNew, sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses });
      await page.sendMessage({ text: 'tool delete_record {"id":"r1"}' });
      const call = tool(page.messages.at(-1));
      assert.equal(call.state, "approval-requested");
      await page.addToolApprovalResponse({ id: call.approval.id, approved, reason: approved ? undefined : "not today" });
      await settled(page, () => text(page.messages.at(-1)) !== "", "the answer after the decision");
      assert.equal(tool(page.messages.at(-1)).state, approved ? "output-available" : "output-denied");
      assert.match(text(page.messages.at(-1)), approved ? /"deleted":"r1"/ : /not today/);
      assert.equal(page.messages.length, 2);
      await sameAfterReload(page);
    });
  }
}

test("regenerate replaces the answer", async () => {
  const page = chat();
  await page.sendMessage({ text: "nonce" });
  const old = text(page.messages.at(-1));
  await page.regenerate();
  assert.notEqual(text(page.messages.at(-1)), old);
  assert.equal(page.messages.length, 2);
  await sameAfterReload(page);
});

test("files reach the model and come back once", async () => {
  const page = chat();
  const bytes = Buffer.from(Array.from({ length: 700 }, (_, n) => n % 256));
  const url = `data:image/png;base64,${bytes.toString("base64")}`;
  await page.sendMessage({ text: "files", files: [{ type: "file", mediaType: "image/png", filename: "dot.png", url }] });
  assert.equal(text(page.messages.at(-1)), 'FILES [{"mediaType":"image/png","size":700}]');
  const files = (await reloaded(page.id)).flatMap((message) => message.parts).filter((part) => part.type === "file");
  assert.equal(files.length, 1);
  assert.equal(files[0].mediaType, "image/png");
  assert.deepEqual(Buffer.from(await (await fetch(files[0].url)).arrayBuffer()), bytes);
});

test("a failed turn shows an error and the next one works", async () => {
  const page = chat();
  await page.sendMessage({ text: "fail no capacity" });
  assert.equal(page.status, "error");
  assert.match(String(page.error.message), /no capacity/);
  page.clearError();
  await page.sendMessage({ text: "say fine" });
  assert.equal(page.status, "ready", String(page.error));
  assert.equal(text(page.messages.at(-1)), "fine");
});

test("a refused turn shows the error text of the body", async () => {
  const page = chat();
  await page.sendMessage({ text: "say hi" });
  const foreign = chat({ id: page.id });
  foreign.transport = undefined;
  const answer = await fetch(`${base}/api/chat`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ id: page.id, resourceId: "bob", messages: [{ id: "u", role: "user", parts: [{ type: "text", text: "recall" }] }] }),
  });
  assert.equal(answer.status, 403);
  assert.ok((await answer.json()).error);
});

test("stopping keeps the thread usable", async () => {
  const page = chat();
  const sending = page.sendMessage({ text: "slow 40 50" });
  while (page.status !== "streaming" || !page.messages.at(-1) || text(page.messages.at(-1)) === "") {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await page.stop();
  await sending;
  await page.sendMessage({ text: "say fine" });
  assert.equal(page.status, "ready", String(page.error));
  assert.equal(text(page.messages.at(-1)), "fine");
});

test("nothing to rejoin is no error", async () => {
  const page = chat();
  await page.sendMessage({ text: "say hi" });
  await page.resumeStream();
  assert.equal(page.status, "ready");
  assert.equal(page.messages.length, 2);
});

test("a page that was loaded with history goes on with it", async () => {
  const first = chat();
  await first.sendMessage({ text: "say one" });
  const second = chat({ id: first.id, messages: await converted(first.id) });
  await second.sendMessage({ text: "recall" });
  assert.equal(text(second.messages.at(-1)), 'SEEN ["user:say one","assistant:one"]');
  await sameAfterReload(second);
});

test("the stream reads as page messages", async () => {
  const transport = new DefaultChatTransport({ api: `${base}/chat/conformance`, body: { memory: { thread: `t-${randomUUID()}`, resource: "ada" } } });
  const stream = await transport.sendMessages({
    chatId: "ignored",
    trigger: "submit-message",
    messages: [{ id: "u1", role: "user", parts: [{ type: "text", text: "say hello there" }] }],
  });
  let last;
  for await (const message of readUIMessageStream({ stream })) last = message;
  assert.equal(text(last), "hello there");
});
