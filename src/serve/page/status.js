// status.js - what the server says of itself, regularly; and what happens when it says nothing.

const SAMPLES = 120;

const status = {
    now: null,    // /lode/status
    models: [],   // /v1/models
    defaults: {}, // sampling where a request says nothing
    samples: [],

    async start() {
        await this.readModels();
        this.tick();
        document.addEventListener('visibilitychange', () => {
            if (document.visibilityState === 'visible')
                this.tick();
        });
    },

    async readModels() {
        this.models = (await getJson('/v1/models')).data || [];
        try {
            const p = await getJson('/props');
            this.defaults = p.default_generation_settings.params || {};
        } catch (e) { /* another server's may not have it */ }
        await this.read();
    },

    async read() {
        const s = await getJson('/lode/status', true);
        this.now = s;
        this.sample(s);
    },

    sample(s) {
        const w = s.work || {}, was = this.last, t = was ? s.clock - was.clock : 0;
        const rate = of => was && t > 0 && s.uptime >= was.uptime ? Math.max(0, (of(w) - of(was.work)) / t) : 0;
        if (!was || t > 30)
            this.samples = []; // nobody looked for a while
        this.samples.push({written: rate(x => x.generated_tokens), read: rate(x => x.prompt_tokens - x.reused_tokens),
                           resident: s.memory.resident, running: w.running, waiting: w.waiting});
        this.samples = this.samples.slice(-SAMPLES);
        this.last = s;
    },

    /* Every second where somebody looks at it, else seldom. */
    tick() {
        clearTimeout(this.timer);
        if (document.visibilityState !== 'visible' || connection.gone)
            return;
        const close = generations.size || (panel.open() && panel.tab === 'activity');
        this.timer = setTimeout(async () => {
            try {
                await this.read();
                panel.show();
            } catch (e) {
                if (e instanceof GoneError)
                    connection.lost();
            }
            this.tick();
        }, close ? 1000 : 10000);
    },
};

function whereText() {
    const c = status.now && status.now.chats;
    return app.store === serverStore ? 'kept by the server in ' + c.path
                                     : 'kept in this browser: ' + (c ? c.why : 'the server keeps none');
}

/* The server is gone: say so, and look for it at growing distances. */
const connection = {
    gone: false,

    lost() {
        if (this.gone)
            return;
        this.gone = true;
        this.wait = 1;
        document.body.classList.add('gone');
        this.count();
    },

    count() {
        let left = this.wait;
        clearInterval(this.timer);
        const say = () => app.banner(left > 0 ? 'The server does not answer. Trying again in ' + left + ' s.'
                                              : 'Trying to reach the server …',
                                     'Try now', () => this.look(), left !== this.wait);
        say();
        this.timer = setInterval(() => {
            left--;
            say();
            if (left <= 0)
                this.look();
        }, 1000);
    },

    async look() {
        clearInterval(this.timer);
        try {
            const r = await fetch('/health', {cache: 'no-store'});
            if (!r.ok)
                throw new Error();
        } catch (e) {
            this.wait = Math.min(15, this.wait * 2);
            return this.count();
        }
        this.gone = false;
        document.body.classList.remove('gone');
        app.banner('The server is back.');
        announce('The server is back');
        setTimeout(() => this.gone || app.banner(''), 2500);
        await app.attempt(() => app.reconnect());
    },
};
