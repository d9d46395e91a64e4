// Questions to the server; what went wrong, in plain words.
const Server = (() => {
  const KEY = "tilepress-key";
  const UNREACHABLE = "The server cannot be reached. Is it running?";
  const TOO_LONG = "This is too long for the model. Shorten it, or start a new chat.";
  const BROKEN = "The connection ended before the answer did.";

  class Problem extends Error {
    constructor(words, wantsKey = false) {
      super(words);
      this.wantsKey = wantsKey;
    }
  }

  function useKey(key) { sessionStorage.setItem(KEY, key); }

  function headers() {
    const key = sessionStorage.getItem(KEY);
    return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  }

  // Of an error as OpenAI's API has it.
  function words(status, error) {
    if (error.code === "context_length_exceeded") return TOO_LONG;
    if (error.code === "timeout") return "The answer took longer than this server allows.";
    if (error.code === "stopping") return "The server is stopping.";
    if (status === 401) return "The server wants an API key that it knows.";
    if (status === 413) return "This is too large for the server. Shorten it, or start a new chat.";
    if (status === 429) return "The server is busy with other requests.";
    if (status === 503) return `The server cannot answer now: ${error.message}.`;
    return `The server gave an error: ${error.message || status}.`;
  }

  async function refusal(reply) {
    const error = (await reply.json().catch(() => null))?.error ?? {}, seconds = reply.headers.get("Retry-After");
    const again = seconds ? ` Try again in ${seconds} s.` : "";
    return new Problem(words(reply.status, error) + again, reply.status === 401);
  }

  // What a promise gives; the network's errors as a Problem, but not an abort.
  async function orProblem(promise, says) {
    try {
      return await promise;
    } catch (error) {
      throw error.name === "AbortError" ? error : new Problem(says);
    }
  }

  async function ask(path, options) {
    const reply = await orProblem(fetch(path, { ...options, headers: headers() }), UNREACHABLE);
    if (!reply.ok) throw await refusal(reply);
    return reply;
  }

  async function models() { return (await orProblem((await ask("v1/models")).json(), BROKEN)).data; }

  // Data of server-sent events.
  async function* events(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ;) {
      const { done, value } = await orProblem(reader.read(), BROKEN);
      if (done) throw new Problem(BROKEN);
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const one of parts) if (one.startsWith("data: ")) yield one.slice(6);
    }
  }

  // Pieces of an answer as they come.
  async function* chat(request, signal) {
    const body = JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } });
    const reply = await ask("v1/chat/completions", { method: "POST", body, signal });
    for await (const event of events(reply.body)) {
      if (event === "[DONE]") return;
      const piece = JSON.parse(event);
      if (piece.error) throw new Problem(words(0, piece.error));
      yield piece;
    }
  }

  return { Problem, useKey, models, chat };
})();
