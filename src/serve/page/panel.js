// panel.js - the panel on the right: settings, the model and what memory it takes, what goes on.

const PARTS = [ // of the memory plan
    ['weights', 'Weights', 'The model itself. Pages of its file, which the system can take back and read again.'],
    ['repacked', 'Copies of weights', 'Weights in another layout, where that is faster.'],
    ['kv', 'Keys and values', 'What attention remembers of the conversations: all of it for all places at once.'],
    ['state', 'Recurrent state', 'What recurrent layers carry along; the same for any length.'],
    ['work', 'Buffers', 'Room for one step’s numbers.'],
];

const panel = {
    tabs: ['settings', 'model', 'activity'],
    tab: 'settings',

    init() {
        for (const t of this.tabs)
            $('tab-' + t).onclick = () => this.choose(t);
        document.querySelector('.tabs').addEventListener('keydown', e => {
            const step = {ArrowRight: 1, ArrowLeft: -1}[e.key], n = this.tabs.length;
            if (step) {
                this.choose(this.tabs[(this.tabs.indexOf(this.tab) + step + n) % n]);
                $('tab-' + this.tab).focus();
                e.preventDefault();
            }
        });
        this.choose(this.tab);
    },

    choose(tab) {
        this.tab = tab;
        for (const t of this.tabs) {
            $('tab-' + t).setAttribute('aria-selected', String(t === tab));
            $('tab-' + t).tabIndex = t === tab ? 0 : -1;
            $('pane-' + t).hidden = t !== tab;
        }
        this.show();
    },

    open: () => !$('panel').hidden,

    /* The status is new, or another tab. */
    show() {
        if (!this.open() || !status.now)
            return;
        if (this.tab === 'model')
            this.showModels();
        else if (this.tab === 'activity')
            this.showActivity();
    },

    showModels() {
        const text = JSON.stringify([status.models, status.now.models, app.model]);
        if (text === this.shownModels)
            return;
        this.shownModels = text;
        const planned = new Map((status.now.models || []).map(m => [m.id, m]));
        $('pane-model').replaceChildren(
            h('h3', null, status.models.length === 1 ? 'The model' : 'Models'),
            h('ul', {class: 'models'}, status.models.map(m => this.modelNode(m, planned.get(m.id)))),
            h('h3', null, 'This server'),
            facts([['Version', 'lode ' + status.now.version], ['Chats', whereText()]]));
    },

    modelNode(m, more) {
        const meta = m.meta || {}, all = {...meta, ...more};
        const rows = [
            ['Architecture', all.arch],
            ['Parameters', all.n_params && formatCount(all.n_params)],
            ['Size', all.size && formatBytes(all.size)],
            ['Context', (all.ctx || all.n_ctx) && formatCount(all.ctx || all.n_ctx) + ' tokens' +
                (all.ctx_train > all.ctx ? ' (trained for ' + formatCount(all.ctx_train) + ')' : '')],
            ['Answers at once', all.slots],
            ['State', more && !more.arch ? 'not loaded; its first request loads it' : ''],
            ['Thinking', more && more.arch && (more.thinks ? 'can be switched' : 'not by a switch')],
        ].filter(r => r[1]);
        const chosen = m.id === app.model;
        return h('li', {class: chosen ? 'chosen' : null},
                 h('div', {class: 'model-head'}, h('b', null, m.id),
                   status.models.length > 1 ? textButton(chosen ? 'In use' : 'Use', 'quiet', () => app.chooseModel(m.id),
                                                         {disabled: chosen}) : null),
                 facts(rows), more && more.plan ? this.planNode(more.plan) : null);
    },

    planNode(plan) {
        const parts = PARTS.filter(p => plan[p[0]] > 0), total = parts.reduce((sum, p) => sum + plan[p[0]], 0);
        const free = Math.max(0, plan.available - (total - plan.weights));
        const label = 'Memory: ' + parts.map(p => p[1] + ' ' + formatBytes(plan[p[0]])).join(', ');
        const bar = h('div', {class: 'plan-bar', role: 'img', 'aria-label': label},
                      parts.map(p => h('span', {class: 'part ' + p[0]})));
        parts.forEach((p, i) => bar.children[i].style.flexGrow = plan[p[0]] / total);
        return h('div', {class: 'plan'}, h('h4', null, 'Memory plan'), bar,
                 h('dl', null, parts.map(p => [h('dt', {title: p[2]}, h('span', {class: 'dot ' + p[0]}), p[1]),
                                               h('dd', null, formatBytes(plan[p[0]]))])),
                 h('p', {class: 'hint'}, formatBytes(total) + ' in all when every place is full; ' + formatBytes(free) +
                                         ' of memory would then be left.'));
    },

    /* ---- activity ---- */

    showActivity() {
        const s = status.now, w = s.work || {}, samples = status.samples;
        const last = samples[samples.length - 1] || {};
        if (!this.charts) {
            this.charts = [
                new Chart('Written', 'tokens/s', x => x.written, formatRate),
                new Chart('Prompts read', 'tokens/s', x => x.read, formatRate),
                new Chart('Memory in use', '', x => x.resident, formatBytes),
                new Chart('Requests', 'running', x => x.running, String, x => x.waiting),
            ];
            this.numbers = h('div');
            $('pane-activity').replaceChildren(h('h3', null, 'The last two minutes'),
                                               ...this.charts.map(c => c.element), h('h3', null, 'Since the start'), this.numbers);
        }
        this.charts.forEach(c => c.show(samples, last));
        const reused = w.prompt_tokens ? ', ' + Math.round(100 * w.reused_tokens / w.prompt_tokens) + ' % read before' : '';
        const each = w.steps ? ', ' + (w.fed_tokens / w.steps).toFixed(1) + ' tokens each' : '';
        this.numbers.replaceChildren(facts([
            ['Running for', formatSpan(s.uptime)],
            ['Tokens written', formatCount(w.generated_tokens || 0)],
            ['Prompt tokens', formatCount(w.prompt_tokens || 0) + reused],
            ['Steps', formatCount(w.steps || 0) + each],
            ['Waiting now', formatCount(w.waiting || 0)],
            ['Context in use', w.kv_size ? formatCount(w.kv_used) + ' of ' + formatCount(w.kv_size) + ' tokens' : ''],
            ['Prefixes kept', w.cached_bytes ? formatBytes(w.cached_bytes) : ''],
        ].filter(r => r[1])));
    },
};

function facts(rows) {
    return h('dl', {class: 'facts'},
             rows.map(([name, value]) => [h('dt', null, name), h('dd', null, String(value))]));
}

/* A line over time, from zero, as wide as the panel. */
class Chart {
    constructor(title, unit, of, format, second) {
        Object.assign(this, {title, unit, of, format, second});
        const make = (tag, attributes) => {
            const e = document.createElementNS('http://www.w3.org/2000/svg', tag);
            for (const [k, v] of Object.entries(attributes))
                e.setAttribute(k, v);
            return e;
        };
        this.area = make('path', {class: 'area'});
        this.line = make('path', {class: 'line'});
        this.other = make('path', {class: 'line second'});
        this.svg = make('svg', {viewBox: '0 0 240 48', preserveAspectRatio: 'none', role: 'img'});
        this.svg.append(this.area, this.line, this.other);
        this.value = h('b');
        this.element = h('figure', {class: 'chart'},
                         h('figcaption', null, h('span', null, title), this.value), this.svg);
    }

    show(samples, last) {
        const values = samples.map(this.of).map(v => v || 0), others = this.second ? samples.map(this.second) : [];
        const top = Math.max(1e-9, ...values, ...others) * 1.08, step = 240 / (SAMPLES - 1);
        const x = i => (240 - (values.length - 1 - i) * step).toFixed(1); // the newest at the right
        const y = v => (47 - 45 * (v || 0) / top).toFixed(1);
        const path = list => list.map((v, i) => (i ? 'L' : 'M') + x(i) + ' ' + y(v)).join('');
        this.line.setAttribute('d', path(values));
        this.other.setAttribute('d', path(others));
        this.area.setAttribute('d', values.length ? path(values) + 'L240 48L' + x(0) + ' 48Z' : '');
        const now = this.format(this.of(last) || 0) + (this.unit ? ' ' + this.unit : '') +
                    (this.second && this.second(last) ? ', ' + this.second(last) + ' waiting' : '');
        this.value.textContent = now;
        this.svg.setAttribute('aria-label', this.title + ': now ' + now + ', at most ' +
                                            this.format(Math.max(0, ...values)));
    }
}
