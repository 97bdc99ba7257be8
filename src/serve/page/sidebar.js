// sidebar.js - the list of chats, and what is done with one.

const sidebar = {
    chats: [],
    more: false,
    words: '',
    turn: 0, // of the newest request: answers of older ones are dropped

    init() {
        $('search').addEventListener('input', () => {
            clearTimeout(this.timer);
            this.timer = setTimeout(() => this.load(), 180);
        });
        $('chats').addEventListener('keydown', e => this.arrows(e));
        $('import').onclick = () => $('file').click();
        $('file').onchange = () => this.importFiles();
        $('export-all').onclick = () => this.exportAll();
    },

    async load(offset) {
        const turn = ++this.turn, words = $('search').value.trim();
        try {
            const r = await app.store.list(words.slice(0, 200), offset);
            if (turn !== this.turn)
                return;
            this.chats = offset ? this.chats.concat(r.chats) : r.chats;
            this.more = r.more;
            this.words = words;
            this.show(r.partial ? 'The search took too long; older chats were not looked at.' : '');
            if (words)
                announce(r.chats.length + ' chats found');
        } catch (e) {
            if (turn === this.turn)
                this.show(e instanceof GoneError ? '' : sentence(e.message));
        }
    },

    /* A chat that was changed here: to the top, without asking the server. */
    touch(chat) {
        const old = this.chats.find(c => c.id === chat.id);
        const entry = {...old, id: chat.id, title: chat.title, updated: Date.now(), snippet: ''};
        this.chats = [entry, ...this.chats.filter(c => c !== old)];
        if (!this.words)
            this.show('');
    },

    show(note) {
        const groups = [], now = new Date();
        for (const c of this.chats) {
            const days = (new Date(now.toDateString()) - new Date(new Date(c.updated).toDateString())) / 864e5;
            const name = this.words ? 'Found' : days < 1 ? 'Today' : days < 2 ? 'Yesterday'
                : days < 8 ? 'Last seven days' : 'Older';
            if (!groups.length || groups[groups.length - 1].name !== name)
                groups.push({name, chats: []});
            groups[groups.length - 1].chats.push(c);
        }
        const empty = this.chats.length ? '' : this.words ? 'Nothing found.' : 'No chats yet.';
        const active = document.activeElement, focused = active && $('chats').contains(active) && active.id;
        $('chats').replaceChildren(
            ...groups.map(g => h('section', {'aria-label': g.name}, h('h2', null, g.name),
                                 h('ul', null, g.chats.map(c => this.entry(c))))),
            ...(this.more ? [textButton('More', 'quiet more', () => this.load(this.chats.length))] : []),
            ...(note || empty ? [h('p', {class: 'empty'}, note || empty)] : []));
        if (focused && $(focused))
            $(focused).focus();
    },

    entry(c) {
        const current = app.chat && app.chat.id === c.id;
        const title = c.title || 'New chat';
        const more = iconButton('more', 'What to do with “' + title + '”', () => openMenu(more, [
            ['Rename', () => this.rename(c)],
            ['Export as Markdown', () => this.exportOne(c, 'md')],
            ['Export as JSON', () => this.exportOne(c, 'json')],
            ['Delete', () => this.remove(c), true],
        ]), {'aria-haspopup': 'menu', 'aria-expanded': 'false', id: 'more-' + c.id});
        return h('li', {class: current ? 'current' : null},
                 h('a', {href: '#' + c.id, id: 'chat-' + c.id, 'data-chat': c.id, title: c.title,
                         'aria-current': current ? 'page' : null},
                   h('span', {class: 'chat-title', dir: 'auto'}, title),
                   generations.has(c.id) && h('span', {class: 'busy', role: 'img', 'aria-label': 'is being answered'}),
                   c.snippet ? h('span', {class: 'snippet'}, this.marked(c.snippet)) : null),
                 more);
    },

    /* The words that were looked for stand out. */
    marked(text) {
        const at = text.toLowerCase().indexOf(this.words.toLowerCase());
        if (at < 0)
            return text;
        const from = Math.max(0, at - 24);
        return [(from ? '…' : '') + text.slice(from, at), h('mark', null, text.slice(at, at + this.words.length)),
                text.slice(at + this.words.length)];
    },

    arrows(e) {
        const all = [...$('chats').querySelectorAll('a')], i = all.indexOf(document.activeElement);
        const to = i < 0 ? undefined : {ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: all.length - 1}[e.key];
        if (to !== undefined && all[to]) {
            all[to].focus();
            e.preventDefault();
        } else if (e.key === 'Delete' && i >= 0) {
            this.remove(this.chats.find(c => c.id === all[i].dataset.chat));
        } else if (e.key === 'F2' && i >= 0) {
            this.rename(this.chats.find(c => c.id === all[i].dataset.chat));
        }
    },

    /* The chat itself: the one that is open, or from where it is kept. */
    async fetch(c) {
        if (app.chat && app.chat.id === c.id)
            return app.chat;
        return generations.has(c.id) ? generations.get(c.id).chat : chatFromJson(await app.store.get(c.id));
    },

    async rename(c) {
        const title = await ask({title: 'Rename the chat', input: c.title, max: 200, ok: 'Rename'});
        if (title === null || !title.trim())
            return;
        await app.attempt(async () => {
            const chat = await this.fetch(c);
            chat.title = title.trim();
            chat.named = true;
            await app.store.put(c.id, {title: chat.title, updated: c.updated});
            c.title = chat.title;
            this.show('');
            app.showTitle();
        });
    },

    async exportOne(c, form) {
        await app.attempt(async () => {
            const chat = await this.fetch(c);
            if (form === 'md')
                download(fileName(chat, '.md'), 'text/markdown', chatToMarkdown(chat));
            else
                download(fileName(chat, '.json'), 'application/json', chatsToJson([chat]));
        });
    },

    async exportAll() {
        await app.attempt(async () => {
            const chats = [];
            for (let offset = 0, more = true; more;) {
                const r = await app.store.list('', offset);
                for (const c of r.chats)
                    chats.push(chatFromJson(await app.store.get(c.id)));
                offset += r.chats.length;
                more = r.more && r.chats.length;
            }
            download('lode-chats.json', 'application/json', chatsToJson(chats));
            app.notice(chats.length + ' chats exported.');
        });
    },

    async importFiles() {
        let n = 0;
        await app.attempt(async () => {
            for (const file of $('file').files) {
                for (const chat of chatsFromFile(await file.text())) {
                    await app.store.put(chat.id, {...chatToJson(chat), new: true});
                    n++;
                }
            }
        });
        $('file').value = '';
        if (n)
            app.notice(n + (n === 1 ? ' chat' : ' chats') + ' imported.');
        this.load();
    },

    async remove(c) {
        const text = '“' + (c.title || 'New chat') + '” and all its versions are deleted for good.';
        const sure = await ask({title: 'Delete this chat?', text, ok: 'Delete', danger: true});
        if (!sure)
            return;
        await app.attempt(async () => {
            if (generations.has(c.id))
                generations.get(c.id).stop();
            await app.store.del(c.id);
            app.forget(c.id);
            this.chats = this.chats.filter(x => x.id !== c.id);
            this.show('');
            announce('Chat deleted');
        });
    },
};
