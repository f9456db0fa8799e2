// Frames from the server, one after another, as they arrive.
const words = new TextDecoder();

const parse = (bytes) => {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const length = view.getUint32(0, true);
  const header = JSON.parse(words.decode(bytes.subarray(4, 4 + length)));
  const body = bytes.slice(4 + length);
  return { header, body };
};

export async function* train(scene, signal) {
  const response = await fetch("train", { method: "POST", body: JSON.stringify(scene), signal, headers: { "Content-Type": "application/json" } });
  if (!response.ok) {
    const answer = await response.json().catch(() => ({}));
    throw new Error(answer.detail ?? `The server answered ${response.status}.`);
  }
  const reader = response.body.getReader();
  let waiting = new Uint8Array(0);
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const joined = new Uint8Array(waiting.length + value.length);
    joined.set(waiting);
    joined.set(value, waiting.length);
    waiting = joined;
    while (waiting.length >= 4) {
      const size = new DataView(waiting.buffer, waiting.byteOffset).getUint32(0, true);
      if (waiting.length < 4 + size) break;
      yield parse(waiting.subarray(4, 4 + size));
      waiting = waiting.slice(4 + size);
    }
  }
}
