// generate.js - answers being written: one request each, several chats at once.

const generations = new Map(); // by chat id

/* An answer to the message `to`, as a new branch under it.  Tells app of what happens:
 * app.onStart(g), onGrow(g), onEnd(g). */
class Generation {
    constructor(chat, to, model) {
        this.chat = chat;
        chat.head = to;
        this.body = requestOf(chat, to, model);
        this.message = addMessage(chat, {role: 'assistant', model});
        this.abort = new AbortController();
        this.waits = ''; // what the server says while nothing comes
        this.started = performance.now();
        this.first = 0;  // when the first text came
        this.pieces = 0;
    }

    async run() {
        generations.set(this.chat.id, this);
        app.onStart(this);
        try {
            await this.read();
            if (!this.message.finish)
                throw new Error('the answer broke off');
        } catch (e) {
            this.fail(e);
        }
        generations.delete(this.chat.id);
        this.message.seconds = Math.round((performance.now() - this.started) / 100) / 10;
        app.onEnd(this);
    }

    async read() {
        const response = await sendJson('POST', '/v1/chat/completions', this.body, {signal: this.abort.signal});
        const reader = response.body.getReader(), text = new TextDecoder(), events = new EventReader();
        for (;;) {
            const {done, value} = await reader.read();
            if (done)
                return;
            for (const e of events.push(text.decode(value, {stream: true}))) {
                if (e.comment !== undefined)
                    this.waits = e.comment;
                else if (e.data !== '[DONE]' && takeChunk(this.message, JSON.parse(e.data)))
                    this.count();
            }
            app.onGrow(this);
        }
    }

    count() {
        this.first = this.first || performance.now();
        this.pieces++;
    }

    /* Pieces are about tokens; the server's own number comes at the end. */
    rate() {
        const t = (performance.now() - this.first) / 1000;
        return this.first && t > 0.3 ? (this.pieces - 1) / t : 0;
    }

    fail(e) {
        const gone = e instanceof GoneError || e instanceof TypeError;
        if (e.name === 'AbortError') {
            this.message.finish = 'stopped';
        } else {
            this.message.error = gone ? 'The connection to the server broke.' : sentence(e.message);
            if (gone)
                connection.lost();
        }
    }

    stop() {
        this.abort.abort();
    }
}

function sentence(text) {
    const s = String(text || 'Something went wrong').trim();
    return s[0].toUpperCase() + s.slice(1) + (/[.!?]$/.test(s) ? '' : '.');
}
