// app.js - the page: which chat is shown, what the user does, where it goes.

const app = {
    chat: null,
    views: new Map(), // of the messages that are shown, by id
    store: serverStore,
    model: '',
    fresh: new Set(),   // ids of chats that are not stored yet
    dirty: new Map(),   // chat id -> messages that are not stored yet
    saving: new Map(),  // chat id -> the save that runs, as a promise
    again: new Set(),   // chats that changed during their save
    deleted: new Set(),

    /* ---- the start ---- */

    async init() {
        for (const [id, name] of [['close-sidebar', 'close'], ['open-sidebar', 'menu'], ['open-panel', 'sliders'],
                                  ['close-panel', 'close'], ['to-end', 'down'], ['send', 'send']])
            $(id).replaceChildren(icon(name));
        $('new-chat').append(icon('plus'), 'New chat');
        this.form = new SettingsForm($('pane-settings'), () => this.settingsChanged());
        sidebar.init();
        panel.init();
        this.initTheme();
        this.listen();
        this.start(newChat(keptSettings().settings));
        $('log').replaceChildren(h('p', {class: 'loading'}, 'Loading …'));
        await this.begin();
    },

    async begin() {
        try {
            await status.start();
        } catch (e) {
            $('log').replaceChildren();
            if (e instanceof GoneError)
                return connection.lost();
            return this.banner(sentence(e.message), 'Try again', () => {
                this.banner('');
                this.begin();
            });
        }
        await this.connected();
    },

    async connected() {
        const c = status.now && status.now.chats;
        this.store = c && c.kept ? serverStore : browserStore;
        $('where').textContent = this.store === serverStore ? ''
            : 'Chats are kept in this browser only: ' + (c ? c.why : 'the server keeps none') + '.';
        if (c && c.notice)
            this.banner(c.notice, 'Close', () => this.banner(''));
        const kept = memory.get('model');
        this.model = status.models.some(m => m.id === kept) ? kept : status.models.length ? status.models[0].id : '';
        this.showModel();
        this.form.show(this.chat, status.defaults);
        await Promise.all([sidebar.load(), this.route()]);
    },

    async reconnect() {
        await status.readModels();
        status.tick();
        if (!this.model)
            return this.connected();
        sidebar.load();
        for (const id of this.dirty.keys())
            this.save(id === this.chat.id ? this.chat : null);
    },

    listen() {
        const input = $('input');
        $('composer').addEventListener('submit', e => {
            e.preventDefault();
            this.submit();
        });
        input.addEventListener('input', () => {
            fitHeight(input);
            this.showSend();
        });
        input.addEventListener('keydown', e => {
            const touch = matchMedia('(pointer: coarse)').matches;
            if (e.key === 'Enter' && !e.shiftKey && !e.isComposing && !touch) {
                e.preventDefault();
                if (!this.busy())
                    this.submit();
            }
        });
        $('new-chat').onclick = () => this.fresher();
        $('open-sidebar').onclick = () => this.toggleSidebar(true);
        $('close-sidebar').onclick = () => this.toggleSidebar(false);
        $('shade').onclick = () => this.closeDrawers();
        $('open-panel').onclick = () => this.togglePanel();
        $('close-panel').onclick = () => this.togglePanel(false);
        $('model').onchange = () => this.chooseModel($('model').value);
        $('skip').onclick = e => {
            e.preventDefault();
            input.focus();
        };
        $('to-end').onclick = () => this.toEnd(true);
        $('scroll').addEventListener('scroll', () => this.scrolled(), {passive: true});
        addEventListener('hashchange', () => this.route());
        addEventListener('keydown', e => this.shortcut(e));
        addEventListener('pagehide', () => this.leave());
        addEventListener('resize', () => fitHeight(input));
    },

    shortcut(e) {
        const command = e.ctrlKey || e.metaKey, dialog = $('dialog').open;
        if (dialog)
            return;
        if (command && !e.shiftKey && e.key.toLowerCase() === 'k') {
            this.toggleSidebar(true);
            $('search').select();
        } else if (command && e.shiftKey && e.key.toLowerCase() === 'o') {
            this.fresher();
        } else if (command && e.key === ',') {
            this.togglePanel();
        } else if (e.key === 'Escape') {
            if (this.closeDrawers())
                ;
            else if (this.busy())
                this.busy().stop();
            else
                return;
        } else {
            return;
        }
        e.preventDefault();
    },

    /* ---- which chat ---- */

    async route() {
        const id = decodeURIComponent(location.hash.slice(1));
        if (id && /^[\w-]{1,64}$/.test(id) && id !== this.chat.id)
            await this.openChat(id);
        else if (!id && !this.fresh.has(this.chat.id))
            this.fresher();
        else
            this.show();
    },

    async openChat(id) {
        if (generations.has(id))
            return this.start(generations.get(id).chat);
        const slow = setTimeout(() => $('log').replaceChildren(h('p', {class: 'loading'}, 'Loading …')), 150);
        try {
            const chat = chatFromJson(await this.store.get(id));
            chat.id = id;
            if (decodeURIComponent(location.hash.slice(1)) === id)
                this.start(chat);
        } catch (e) {
            if (e instanceof GoneError)
                connection.lost();
            this.fresher(e.status === 404 ? 'That chat is not here (any more).' : sentence(e.message));
        } finally {
            clearTimeout(slow);
        }
    },

    /* A new chat, which is stored with its first message. */
    fresher(notice) {
        const kept = keptSettings(), chat = newChat(kept.settings);
        chat.system = kept.system || '';
        this.start(chat, notice);
        if (location.hash)
            history.pushState(null, '', location.pathname);
        $('input').focus();
    },

    start(chat, notice) {
        if (!chat.messages.size)
            this.fresh.add(chat.id);
        this.chat = chat;
        this.form.show(chat, status.defaults);
        this.notice(typeof notice === 'string' ? notice : '');
        this.show();
        this.toEnd();
        sidebar.show('');
        if (this.narrow() && document.body.classList.contains('sidebar-open'))
            this.toggleSidebar(false);
    },

    forget(id) {
        this.deleted.add(id);
        this.dirty.delete(id);
        if (this.chat.id === id)
            this.fresher();
    },

    /* ---- showing ---- */

    show() {
        const path = pathTo(this.chat, this.chat.head), views = new Map(), g = this.busy();
        for (const m of path) {
            const v = new MessageView(this.chat, m);
            if (g && g.message === m) {
                v.live = true;
                v.fill();
            }
            views.set(m.id, v);
        }
        this.views = views;
        $('log').replaceChildren(...(path.length ? [...views.values()].map(v => v.element) : [this.welcome()]));
        this.showTitle();
        this.showSend();
        this.scrolled();
    },

    welcome() {
        const tries = ['Tell me a story about a lighthouse.', 'Explain how a sailing boat can go against the wind.',
                       'Write a Python function that finds duplicates in a list.'];
        return h('div', {class: 'welcome'}, h('h2', null, 'What shall we talk about?'),
                 h('p', null, this.model ? this.model + ' answers, on this server alone.' : ''),
                 h('div', {class: 'tries'}, tries.map(t => h('button', {type: 'button', onclick: () => {
                     $('input').value = t;
                     fitHeight($('input'));
                     this.showSend();
                     $('input').focus();
                 }}, t))));
    },

    showTitle() {
        const title = this.chat.title || 'New chat';
        $('title').textContent = title;
        document.title = this.chat.title ? title + ' – lode' : 'lode';
    },

    showModel() {
        const select = $('model'), ids = status.models.map(m => m.id);
        select.hidden = ids.length < 2;
        select.replaceChildren(...ids.map(id => h('option', {value: id}, id)));
        select.value = this.model;
        if (!this.chat.messages.size)
            this.show();
    },

    chooseModel(id) {
        this.model = id;
        memory.set('model', id);
        this.showModel();
        panel.show();
    },

    busy() {
        return generations.get(this.chat.id);
    },

    showSend() {
        const button = $('send'), busy = Boolean(this.busy());
        if (button.dataset.busy !== String(busy)) {
            button.dataset.busy = String(busy);
            button.replaceChildren(icon(busy ? 'stop' : 'send'));
            button.setAttribute('aria-label', busy ? 'Stop' : 'Send');
            button.title = busy ? 'Stop (Esc)' : 'Send (Enter; Shift+Enter makes a new line)';
        }
        button.disabled = !busy && !$('input').value.trim();
        $('rate').hidden = !busy;
    },

    notice(text) {
        $('notice').textContent = text;
    },

    /* quiet: a change that is not worth telling a screen reader. */
    banner(text, label, action, quiet) {
        const e = $('banner');
        e.hidden = !text;
        e.setAttribute('role', quiet ? 'presentation' : 'alert');
        const old = e.querySelector('span'), button = e.querySelector('button');
        if (quiet && old && button && button.textContent === label)
            old.textContent = text; // keeps the focus of its button
        else
            e.replaceChildren(h('span', null, text), ...(label ? [textButton(label, null, action)] : []));
    },

    /* Whether it worked; what went wrong is shown. */
    async attempt(f) {
        try {
            await f();
            return true;
        } catch (e) {
            if (e instanceof GoneError)
                connection.lost();
            else
                this.notice(sentence(e.message));
            return false;
        }
    },

    /* ---- scrolling ---- */

    atEnd: () => $('scroll').scrollHeight - $('scroll').scrollTop - $('scroll').clientHeight < 60,

    scrolled() {
        this.follow = this.atEnd();
        $('to-end').hidden = this.follow;
    },

    toEnd(smooth) {
        const calm = matchMedia('(prefers-reduced-motion: reduce)').matches;
        $('scroll').scrollTo({top: $('scroll').scrollHeight, behavior: smooth && !calm ? 'smooth' : 'instant'});
        this.follow = true;
        $('to-end').hidden = true;
    },

    /* ---- talking ---- */

    submit() {
        const text = $('input').value;
        if (this.busy())
            return this.busy().stop();
        if (!text.trim() || connection.gone)
            return;
        $('input').value = '';
        fitHeight($('input'));
        this.say(text, this.chat.head);
    },

    say(text, parent) {
        const chat = this.chat;
        chat.head = parent;
        const m = addMessage(chat, {role: 'user', content: text});
        if (!chat.title)
            chat.title = shorten(text, 60);
        this.answer(chat, m.id, [m]);
    },

    answer(chat, to, unsaved) {
        const problem = SETTINGS.find(s => settingProblem(s, String(chat.settings[s.name] ?? '')));
        if (problem) {
            this.show();
            return this.notice('The setting “' + problem.label + '” is not right.');
        }
        this.notice('');
        this.save(chat, unsaved);
        new Generation(chat, to, this.model).run();
    },

    regenerate(m) {
        if (!this.busy())
            this.answer(this.chat, m.parent, []);
    },

    saveEdit(m, text) {
        if (!text.trim() || this.busy())
            return;
        if (m.role === 'user')
            return this.say(text, parentOf(m));
        this.chat.head = parentOf(m);
        const copy = addMessage(this.chat, {role: m.role, content: text, model: m.model, finish: 'stop',
                                            edited: true});
        this.save(this.chat, [copy]);
        this.show();
        $('m-' + copy.id).scrollIntoView({block: 'nearest'});
    },

    sendResults(m, results) {
        const chat = this.chat, all = [];
        if (this.busy())
            return;
        chat.head = m.id;
        for (const r of results)
            all.push(addMessage(chat, {role: 'tool', content: r.text, tool_call_id: r.id}));
        this.answer(chat, chat.head, all);
    },

    showBranch(m) {
        if (!m || this.busy())
            return;
        this.chat.head = latestLeaf(this.chat, m.id);
        this.save(this.chat, []);
        this.show();
        const element = $('m-' + m.id), group = element.querySelector('.branches');
        element.scrollIntoView({block: 'nearest'});
        (group.querySelector('button:not([disabled])') || group).focus();
    },

    /* The path up to this message as a chat of its own. */
    fork(m) {
        const path = pathTo(this.chat, m.id), chat = withNewIds({...this.chat, head: m.id,
                                                                 messages: new Map(path.map(x => [x.id, x]))});
        chat.created = chat.updated = Date.now();
        this.fresh.add(chat.id);
        this.save(chat, [...chat.messages.values()]);
        this.start(chat);
        location.hash = chat.id;
        this.notice('This is a new chat, with all that came before.');
    },

    onStart(g) {
        if (g.chat === this.chat) {
            this.show();
            this.toEnd();
        }
        announce('The answer begins');
        status.tick();
        sidebar.touch(g.chat);
        g.keeper = setInterval(() => this.save(g.chat, [g.message]), 4000);
    },

    onGrow(g) {
        if (g.chat === this.chat && !g.drawn)
            this.draw(g);
    },

    /* At most once a frame, and so seldom that drawing takes a fifth of the time. */
    draw(g) {
        const view = this.views.get(g.message.id);
        g.drawn = true;
        if (!view)
            return void (g.drawn = false);
        const wait = Math.max(0, (g.nextDraw || 0) - performance.now());
        setTimeout(() => requestAnimationFrame(() => {
            const start = performance.now(), rate = g.rate();
            g.drawn = false;
            if (!view.live)
                return;
            view.grow();
            $('rate').textContent = rate ? formatRate(rate) + ' tokens/s' : '';
            if (this.follow)
                this.toEnd();
            g.nextDraw = performance.now() + 4 * (performance.now() - start);
        }), wait);
    },

    onEnd(g) {
        clearInterval(g.keeper);
        const view = this.views.get(g.message.id), m = g.message;
        if (view && g.chat === this.chat) {
            const follow = this.follow;
            view.live = false;
            view.grow();
            view.finish();
            if (follow)
                this.toEnd();
            this.showSend();
        }
        if (!this.deleted.has(g.chat.id))
            this.save(g.chat, [m]);
        sidebar.show('');
        announce(m.error ? 'The answer failed: ' + m.error
                         : 'Answer: ' + shorten(m.content || 'a call of a tool', 600));
    },

    settingsChanged() {
        const chat = this.chat;
        clearTimeout(this.settingsTimer);
        if (!this.fresh.has(chat.id))
            this.settingsTimer = setTimeout(() => this.save(chat, []), 600);
    },

    /* ---- keeping ---- */

    /* Stores the chat and these messages; one save of a chat at a time, what comes meanwhile goes with the
     * next.  What could not be stored is tried again with it too. */
    save(chat, messages) {
        if (!chat || this.deleted.has(chat.id))
            return;
        const waiting = this.dirty.get(chat.id) || new Map();
        for (const m of messages || [])
            waiting.set(m.id, m);
        this.dirty.set(chat.id, waiting);
        if (!this.saving.has(chat.id))
            this.saving.set(chat.id, this.store1(chat).finally(() => {
                this.saving.delete(chat.id);
                if (this.again.delete(chat.id))
                    this.save(chat, []);
            }));
        else
            this.again.add(chat.id);
    },

    async store1(chat) {
        const batch = this.dirty.get(chat.id), isNew = this.fresh.has(chat.id);
        this.dirty.set(chat.id, new Map());
        const {messages, id, updated, ...rest} = chat;
        try {
            await this.store.put(chat.id, {...rest, new: isNew, messages: [...batch.values()]});
            this.fresh.delete(chat.id);
            if (!this.dirty.get(chat.id).size)
                this.dirty.delete(chat.id);
            if (isNew && this.chat === chat && location.hash.slice(1) !== chat.id)
                history.replaceState(null, '', '#' + chat.id);
            sidebar.touch(chat);
        } catch (e) {
            this.unsaved(chat, batch, e);
        }
    },

    unsaved(chat, batch, e) {
        if (this.deleted.has(chat.id))
            return;
        const later = this.dirty.get(chat.id);
        this.dirty.set(chat.id, new Map([...batch, ...later]));
        if (e.status === 404) { // deleted elsewhere, while it is used here: it is stored again, as a whole
            this.fresh.add(chat.id);
            this.save(chat, [...chat.messages.values()]);
        } else if (e instanceof GoneError) {
            connection.lost();
        } else {
            this.banner('Not stored: ' + sentence(e.message), 'Try again', () => {
                this.banner('');
                this.save(chat, []);
            });
        }
    },

    /* The page goes away in the middle of an answer: what there is of it is sent along, if it is not long. */
    leave() {
        for (const g of generations.values()) {
            const {messages, id, updated, ...rest} = g.chat;
            const body = JSON.stringify({...rest, new: this.fresh.has(g.chat.id), messages: [g.message]});
            const headers = {'Content-Type': 'application/json'};
            if (key.get())
                headers.Authorization = 'Bearer ' + key.get();
            if (this.store === serverStore && body.length < 60000)
                fetch('/lode/chats/' + g.chat.id, {method: 'PUT', body, keepalive: true, headers}).catch(() => {});
        }
    },

    /* ---- drawers and theme ---- */

    narrow: () => matchMedia('(max-width: 60rem)').matches,

    toggleSidebar(open) {
        document.body.classList.toggle('sidebar-open', open);
        document.body.classList.toggle('sidebar-closed', !open);
        $('open-sidebar').setAttribute('aria-expanded', String(open));
        this.shade();
        if (this.narrow() && open)
            $('new-chat').focus();
        else if (this.narrow())
            $('open-sidebar').focus();
    },

    togglePanel(open) {
        const now = open === undefined ? $('panel').hidden : open;
        $('panel').hidden = !now;
        document.body.classList.toggle('panel-open', now);
        $('open-panel').setAttribute('aria-expanded', String(now));
        this.shade();
        status.tick();
        panel.show();
        (now ? $('tab-' + panel.tab) : $('open-panel')).focus();
    },

    /* Whether one was open over the page. */
    closeDrawers() {
        const sidebarOver = this.narrow() && document.body.classList.contains('sidebar-open');
        const panelOver = !$('panel').hidden;
        if (panelOver)
            this.togglePanel(false);
        else if (sidebarOver)
            this.toggleSidebar(false);
        return panelOver || sidebarOver;
    },

    shade() {
        const over = this.narrow() && (document.body.classList.contains('sidebar-open') || !$('panel').hidden);
        $('shade').hidden = !over;
        $('main').inert = over;
    },

    initTheme() {
        const names = {auto: 'as the system', light: 'light', dark: 'dark'}, order = ['auto', 'light', 'dark'];
        const set = theme => {
            document.documentElement.dataset.theme = theme;
            $('theme').title = 'Colours: ' + names[theme];
            $('theme').setAttribute('aria-label', 'Colours: ' + names[theme]);
            memory.set('theme', theme);
        };
        $('theme').append(icon('theme'));
        $('theme').onclick = () => set(order[(order.indexOf(document.documentElement.dataset.theme) + 1) % 3]);
        set(order.includes(memory.get('theme')) ? memory.get('theme') : 'auto');
    },
};

app.init();
