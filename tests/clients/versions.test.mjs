// The earlier major versions of the page library against the same endpoint.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";

const base = process.env.BASE_URL;

for (const version of ["ai-v5", "ai-v6", "ai"]) {
  const { DefaultChatTransport, readUIMessageStream, validateUIMessages } = await import(version);

  async function turn(chatId, said) {
    const transport = new DefaultChatTransport({ api: `${base}/api/chat`, body: { resourceId: "ada", agentId: "conformance" } });
    const messages = [{ id: randomUUID(), role: "user", parts: [{ type: "text", text: said }] }];
    const stream = await transport.sendMessages({ chatId, trigger: "submit-message", messages });
    const errors = [];
    let last;
    for await (const message of readUIMessageStream({ stream, onError: (error) => errors.push(String(error)) })) last = message;
    assert.deepEqual(errors, []);
    return last;
  }

  test(`${version} reads every kind of answer and the history`, async () => {
    const id = `v-${randomUUID()}`;
    for (const said of ["say hello", "think so", 'tool get_weather {"city":"Oslo"}', "tool broken_tool {}", 'tool pick_color {"options":["red"]}', "say on"]) {
      assert.equal((await turn(id, said)).role, "assistant");
    }
    const { messages } = await (await fetch(`${base}/api/chat/${id}`)).json();
    await validateUIMessages({ messages });
    assert.equal(messages.length, 12);
  });

  test(`${version} joins an answer that is running, from its beginning`, async () => {
    const id = `v-${randomUUID()}`;
    await turn(id, "say first");
    const running = turn(id, "slow 40 80");
    const transport = new DefaultChatTransport({ api: `${base}/api/chat` });
    let stream = null;
    for (let tries = 0; tries < 40 && !stream; tries++) {
      await new Promise((resolve) => setTimeout(resolve, 50));
      stream = await transport.reconnectToStream({ chatId: id });
    }
    assert.ok(stream, "expected a running answer to join");
    let joined;
    for await (const message of readUIMessageStream({ stream })) joined = message;
    const whole = await running;
    const text = (message) => message.parts.filter((p) => p.type === "text").map((p) => p.text).join("");
    assert.equal(joined.id, whole.id);
    assert.equal(text(joined), text(whole));
    assert.equal(await transport.reconnectToStream({ chatId: id }), null);
  });
}
