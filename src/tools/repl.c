/* repl.c - the chat of `lode run`: reads lines, runs commands, answers the rest. */
#include "run.h"

#include "entry.h"
#include "interrupt.h"
#include "out.h"

#include <stdlib.h>
#include <string.h>

enum step { GO_ON, LEAVE };

/* name, what follows it, help */
#define COMMAND_LIST(X)                                                                            \
    X(help, "", "this list")                                                                       \
    X(set, "NAME VALUE", "change temp, top_k, n, seed, system, ...; alone: list them")             \
    X(show, "", "the model, the settings, the system message")                                     \
    X(clear, "", "forget the conversation (the system message stays)")                             \
    X(save, "FILE", "write the conversation as JSON messages")                                     \
    X(load, "FILE", "go on from saved messages")                                                   \
    X(think, "", "ask the model to think before it answers")                                       \
    X(nothink, "", "ask it not to")                                                                \
    X(quit, "", "leave (Ctrl+D does too)")

/* Names that other chats use for the same. */
static const char *const synonyms[][2] = {
    {"/?", "/help"},           {"/bye", "/quit"},    {"/exit", "/quit"},
    {"/no_think", "/nothink"}, {"/reset", "/clear"}, {"/read", "/load"},
};

/* ------------------------------------------------------------------------------------- commands */

static enum step do_help(struct run *r, const char *arg) {
    (void)r;
    (void)arg;
#define HELP_ROW(name, args, text) printf("  /%-8s %-11s %s\n", #name, args, text);
    COMMAND_LIST(HELP_ROW)
#undef HELP_ROW
    printf("  %-9s %-11s %s\n  %-9s %-11s %s\n", "\"\"\"", "",
           "begins and ends text of several lines; a \\ at a line's end goes on too", "Ctrl+C", "",
           "stops the answer; twice at the prompt: leave");
    return GO_ON;
}

/* What /set changes while a chat runs: the sampler's flags and the answer's. */
static bool settable(const struct arg_flag *f) {
    const size_t first = offsetof(struct run_opts, sampling);
    const bool sampling = f->offset >= first && f->offset < first + sizeof(struct sampling_opts);
    const bool number =
        f->type == ARG_INT || f->type == ARG_FLOAT || f->type == ARG_BOOL || f->type == ARG_STR;
    return (sampling && number) || f->offset == offsetof(struct run_opts, n_predict) ||
           f->offset == offsetof(struct run_opts, stats);
}

static const char *short_name(const struct arg_flag *f, char out[64]) {
    const char *at = strstr(f->names, "--");
    at = at ? at + 2 : f->names + 1;
    snprintf(out, 64, "%.*s", (int)strcspn(at, ","), at);
    return out;
}

static void list_settings(const struct run *r) {
    static const char *const from[] = {"", " (model)", " (environment)", ""};
    char name[64], value[128];
    int column = 0;
    for (size_t i = 0; i < r->args.spec->n_flags; i++) {
        const struct arg_flag *f = &r->args.spec->flags[i];
        if (!settable(f) || f->type == ARG_FOREIGN)
            continue;
        args_show(&r->args, f, value, sizeof value);
        if (!*value)
            continue;
        char cell[256];
        snprintf(cell, sizeof cell, "%s %s%s", short_name(f, name), value, from[r->args.origin[i]]);
        printf("  %-30s%s", cell, column % 3 == 2 ? "\n" : "");
        column++;
    }
    if (column % 3)
        putchar('\n');
}

static enum step do_set(struct run *r, const char *arg) {
    struct lode_error err;
    if (!strncmp(arg, "parameter ", 10))
        arg += 10 + strspn(arg + 10, " ");
    if (!*arg) {
        list_settings(r);
        return GO_ON;
    }
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(arg, " ="), arg);
    const char *value = arg + strlen(name);
    value += strspn(value, " =");
    if (!strcmp(name, "system")) {
        if (chat_set_system(&r->chat, value, &err) < 0)
            tool_report(&err);
        else
            printf("system message %s\n", *value ? "set" : "removed");
        return GO_ON;
    }
    const struct arg_flag *f = args_find(r->args.spec, name);
    if (!f || !settable(f)) {
        printf("%s cannot be set here; /set lists what can\n", name);
        return GO_ON;
    }
    if (!*value) {
        printf("/set %s needs a value\n", name);
        return GO_ON;
    }
    /* texts must outlive this line, so one copy stays until the next /set of a text */
    char *copy = strdup(value);
    const struct run_opts before = r->o;
    if (!copy)
        return GO_ON;
    if (args_set(&r->args, f, copy, &err) < 0 || run_make_sampler(r, &err) < 0) {
        r->o = before;
        tool_report(&err);
        free(copy);
        return GO_ON;
    }
    printf("%s is %s\n", name, value);
    if (f->type == ARG_STR) {
        free(r->kept);
        r->kept = copy;
    } else {
        free(copy);
    }
    return GO_ON;
}

static enum step do_show(struct run *r, const char *arg) {
    (void)arg;
    run_describe(r, stdout);
    printf("%zu of %u tokens of the context used by %zu messages\n",
           lode_session_length(r->session), lode_session_ctx(r->session), chat_length(&r->chat));
    if (*chat_system(&r->chat))
        printf("system: %s\n", chat_system(&r->chat));
    list_settings(r);
    return GO_ON;
}

static enum step do_clear(struct run *r, const char *arg) {
    (void)arg;
    chat_clear(&r->chat);
    printf("forgotten\n");
    return GO_ON;
}

static enum step do_save(struct run *r, const char *arg) {
    struct lode_error err;
    if (!*arg)
        printf("/save needs a file name\n");
    else if (chat_save(&r->chat, arg, &err) < 0)
        tool_report(&err);
    else
        printf("%zu messages saved in %s\n", chat_length(&r->chat), arg);
    return GO_ON;
}

static enum step do_load(struct run *r, const char *arg) {
    struct lode_error err;
    if (!*arg)
        printf("/load needs a file name\n");
    else if (chat_load(&r->chat, arg, &err) < 0)
        tool_report(&err);
    else
        printf("%zu messages loaded from %s\n", chat_length(&r->chat), arg);
    return GO_ON;
}

static enum step do_think(struct run *r, const char *arg) {
    (void)arg;
    r->chat.think = CHAT_THINK_ON;
    printf("the model is asked to think\n");
    return GO_ON;
}

static enum step do_nothink(struct run *r, const char *arg) {
    (void)arg;
    r->chat.think = CHAT_THINK_OFF;
    printf("the model is asked not to think\n");
    return GO_ON;
}

static enum step do_quit(struct run *r, const char *arg) {
    (void)r;
    (void)arg;
    return LEAVE;
}

static const struct command {
    const char *name;
    enum step (*run)(struct run *r, const char *arg);
} commands[] = {
#define COMMAND_ROW(name, args, text) {"/" #name, do_##name},
    COMMAND_LIST(COMMAND_ROW)
#undef COMMAND_ROW
};

static const char *const command_names[] = {
#define COMMAND_NAME(name, args, text) "/" #name,
    COMMAND_LIST(COMMAND_NAME)
#undef COMMAND_NAME
        NULL,
};

static enum step run_command(struct run *r, const char *line) {
    char word[32];
    const char *arg = line + strcspn(line, " ");
    snprintf(word, sizeof word, "%.*s", (int)(arg - line), line);
    arg += strspn(arg, " ");
    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++)
        if (!strcmp(word, synonyms[i][0]))
            snprintf(word, sizeof word, "%s", synonyms[i][1]);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(word, commands[i].name))
            return commands[i].run(r, arg);
    const char *near = args_nearest(word, command_names);
    printf("there is no %s%s%s%s; /help lists what there is\n", word, near ? " (did you mean " : "",
           near ? near : "", near ? "?)" : "");
    return GO_ON;
}

/* -------------------------------------------------------------------------------------- entries */

/* Answers one entry; false where the chat cannot go on. */
static bool converse(struct run *r, const char *text) {
    struct lode_error err = {0};
    enum answer_end end = ANSWER_ENDED;
    int rc = r->raw ? 0 : chat_add(&r->chat, "user", text, NULL, &err);
    const bool added = rc == 0 && !r->raw;
    if (rc == 0)
        rc = run_turn(r, text, &end, &err);
    if (rc < 0) {
        tool_report(&err);
        if (added)
            chat_drop_last(&r->chat); /* as if it had not been said */
    }
    return end != ANSWER_CLOSED;
}

int repl(struct run *r) {
    struct line *lines = line_open(command_names);
    if (!lines)
        return 1;
    if (out_is_terminal(stdin)) {
        run_describe(r, stderr);
        fprintf(stderr, "%s/help lists commands, Ctrl+C stops an answer, Ctrl+D leaves.%s\n",
                out_dim(stderr), out_plain(stderr));
    }
    bool going = true;
    while (going && out_flush()) {
        char *entry = NULL;
        switch (entry_read(lines, &entry)) {
        case LINE_END:
            if (out_is_terminal(stdin))
                putchar('\n');
            going = false;
            break;
        case LINE_INTERRUPTED:
            going = false;
            break;
        case LINE_TEXT:
            line_remember(lines, entry);
            interrupt_clear();
            if (entry[0] == '/')
                going = run_command(r, entry) == GO_ON;
            else if (entry[strspn(entry, " \t\n")])
                going = converse(r, entry);
            break;
        }
        free(entry);
    }
    line_close(lines);
    return 0;
}
