#include "model/model.h"

#include "backend/cuda.h"
#include "base/alloc.h"
#include "base/machine.h"
#include "model/groups.h"
#include "model/profile.h"
#include "model/shard.h"
#include "store/file_store.h"
#include "store/stream.h"
#include "text/tokenizer.h"

#include <stdio.h>

/* general.file_type, by llama.cpp's numbers and names: what people call a mix. */
static const struct {
    uint32_t id;
    const char *name;
} file_types[] = {
    {0, "all F32"},         {1, "F16"},
    {2, "Q4_0"},            {3, "Q4_1"},
    {7, "Q8_0"},            {8, "Q5_0"},
    {9, "Q5_1"},            {10, "Q2_K - Medium"},
    {11, "Q3_K - Small"},   {12, "Q3_K - Medium"},
    {13, "Q3_K - Large"},   {14, "Q4_K - Small"},
    {15, "Q4_K - Medium"},  {16, "Q5_K - Small"},
    {17, "Q5_K - Medium"},  {18, "Q6_K"},
    {19, "IQ2_XXS - 2.0625 bpw"}, {20, "IQ2_XS - 2.3125 bpw"},
    {21, "Q2_K - Small"},   {22, "IQ3_XS - 3.3 bpw"},
    {23, "IQ3_XXS - 3.0625 bpw"}, {24, "IQ1_S - 1.5625 bpw"},
    {25, "IQ4_NL - 4.5 bpw"}, {26, "IQ3_S - 3.4375 bpw"},
    {27, "IQ3_S mix - 3.66 bpw"}, {28, "IQ2_S - 2.5 bpw"},
    {29, "IQ2_M - 2.7 bpw"}, {30, "IQ4_XS - 4.25 bpw"},
    {31, "IQ1_M - 1.75 bpw"}, {32, "BF16"},
    {36, "TQ1_0 - 1.69 bpw ternary"}, {37, "TQ2_0 - 2.06 bpw ternary"},
    {38, "MXFP4 MoE"},
};

/* The mix's name, how a directory's weights were quantised, or the type that most bytes have. */
static const char *type_name(const struct lode_model *m, char text[128]) {
    struct lode_str how;
    uint32_t id;
    if (lode_source_str(m->source, "lode.quantization", &how)) {
        snprintf(text, 128, "%.*s", (int)(how.len < 127 ? how.len : 127), how.data);
        return text;
    }
    if (lode_source_u32(m->source, "general.file_type", &id))
        for (size_t i = 0; i < sizeof file_types / sizeof *file_types; i++)
            if (file_types[i].id == id)
                return file_types[i].name;
    uint64_t bytes[LODE_DTYPE_COUNT] = {0};
    int most = LODE_F32;
    for (size_t i = 0; i < m->source->n_tensors; i++) {
        const struct lode_gguf_tensor *t = &m->source->tensors[i];
        bytes[t->type] += t->size;
        most = bytes[t->type] > bytes[most] ? (int)t->type : most;
    }
    return lode_dtypes[most].name;
}

static char *copy_key(const struct lode_model *m, const char *key) {
    struct lode_str s;
    return lode_source_str(m->source, key, &s) ? lode_strndup(s.data, s.len) : NULL;
}

static int describe(struct lode_model *m, struct lode_error *err) {
    const struct lode_hparams *hp = &m->hp;
    m->chat_template = copy_key(m, "tokenizer.chat_template");
    m->name = copy_key(m, "general.name");
    char text[128];
    const char *type = type_name(m, text);
    m->type = lode_strndup(type, strlen(type));
    if (!m->type)
        return lode_fail_nomem(err, "model description");
    m->info = (struct lode_model_info){.path = m->source->path,
                                       .arch = m->source->arch,
                                       .name = m->name ? m->name : "",
                                       .type = m->type,
                                       .chat_template = m->chat_template,
                                       .n_layers = hp->n_layers,
                                       .d_model = hp->d_model,
                                       .n_heads = hp->n_heads,
                                       .n_kv_heads = hp->n_kv_heads,
                                       .n_vocab = hp->n_vocab,
                                       .ctx_train = hp->ctx_train,
                                       .token_size = m->plans[LODE_BODY].weight_bytes +
                                                     m->plans[LODE_HEAD].weight_bytes,
                                       .prompt_int_macs = m->plans[LODE_BODY].int_macs,
                                       .prompt_float_macs = m->plans[LODE_BODY].float_macs,
                                       .notes = m->notes ? m->notes : m->source->notes,
                                       .isa = lode_isa_name(m->isa),
                                       .numerics = m->numerics,
                                       .device = "CPU",
                                       .n_gpus = m->n_gpus,
                                       .gpu = m->gpu,
                                       .device_note = m->device_note};
    for (size_t i = 0; i < m->source->n_tensors; i++) {
        const struct lode_gguf_tensor *t = &m->source->tensors[i];
        m->info.n_params += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
        m->info.size += t->size;
    }
    return 0;
}

#define ISA_NAME(name) " " #name

static int choose_isa(struct lode_model *m, const char *wanted, struct lode_error *err) {
    enum lode_isa isa = lode_isa_best();
    if (wanted) {
        const int named = lode_isa_from_name(wanted);
        if (named < 0)
            return lode_fail(err, LODE_ERR_ARG, "--isa",
                             "'%s' is no instruction set; there are" LODE_ISA_LIST(ISA_NAME), wanted);
        if (!lode_isa_usable((enum lode_isa)named))
            return lode_fail(err, LODE_ERR_UNSUPPORTED, "--isa",
                             "this computer can't run %s; the best it has is %s", wanted,
                             lode_isa_name(isa));
        isa = (enum lode_isa)named;
    }
    m->isa = isa;
    m->opts.isa = NULL; /* the caller's string */
    return 0;
}

static int choose_numerics(struct lode_model *m, const char *wanted, struct lode_error *err) {
    const bool fast = wanted && strcmp(wanted, "fast") == 0;
    if (wanted && !fast && strcmp(wanted, "exact") != 0)
        return lode_fail(err, LODE_ERR_ARG, "--numerics", "'%.40s'; exact or fast expected", wanted);
    m->wants_fast = fast;
    if (fast)
        m->fast = lode_fast_best(m->isa);
    snprintf(m->numerics, sizeof m->numerics, m->fast ? "fast (%s)" : "exact",
             lode_fast_name(m->fast));
    m->opts.numerics = NULL; /* the caller's string */
    return 0;
}

/* Files that belong to a model, and are none: by general.type, or as older ones show. */
static int check_kind(const struct lode_model *m, struct lode_error *err) {
    struct lode_str type = {0}, of = LODE_STR("?"), adapter;
    lode_source_str(m->source, "general.type", &type);
    lode_source_str(m->source, "general.architecture", &of);
    const bool lora = lode_source_str(m->source, "adapter.type", &adapter);
    const int n = (int)(of.len < 60 ? of.len : 60);
    if (lora || lode_str_eqz(type, "adapter"))
        return lode_fail(err, LODE_ERR_UNSUPPORTED, m->source->path,
                         "this is an adapter (LoRA) for a model of architecture %.*s, and no model: "
                         "name the model; adapters cannot be applied yet",
                         n, of.data);
    if (lode_str_eqz(type, "mmproj") || lode_str_eqz(of, "clip"))
        return lode_fail(err, LODE_ERR_UNSUPPORTED, m->source->path,
                         "this is the part of a model that sees or hears (mmproj): name the file "
                         "with its language model");
    if (lode_str_eqz(type, "imatrix"))
        return lode_fail(err, LODE_ERR_UNSUPPORTED, m->source->path,
                         "this is an importance matrix, and no model: it is for lode convert");
    return 0;
}

static int unknown_arch(const struct lode_model *m, struct lode_error *err) {
    char list[512] = "";
    size_t at = 0;
    for (const char *const *a = lode_model_archs(); *a; a++)
        at += (size_t)snprintf(list + at, at < sizeof list ? sizeof list - at : 0, "%s%s",
                               at ? ", " : "", *a);
    const char *arch = m->source->arch;
    if (!*arch)
        return lode_fail(err, LODE_ERR_FORMAT, m->source->path,
                         "general.architecture is missing: this is no language model; lode runs %s",
                         list);
    return lode_fail(err, LODE_ERR_UNSUPPORTED, m->source->path,
                     "architecture '%.60s' is not supported, and its tensors are not those of a "
                     "standard decoder; lode runs %s",
                     arch, list);
}

/* A model may have no vocabulary (embedders' backbones, tests); one that it has must be understood. */
static int load_tokenizer(struct lode_model *m, struct lode_error *err) {
    struct lode_str kind;
    if (!m->source->gguf) {
        const int rc = lode_tokenizer_load(&m->tokenizer, m->source->path, err);
        return rc == LODE_ERR_MISSING ? 0 : rc;
    }
    if (!lode_source_str(m->source, "tokenizer.ggml.model", &kind) || lode_str_eqz(kind, "none") ||
        lode_str_eqz(kind, "no_vocab"))
        return 0;
    return lode_tokenizer_from_gguf(&m->tokenizer, m->source->gguf, err);
}

/* The source's, the architecture's, the devices'. */
static int keep_notes(struct lode_model *m, const char *note, struct lode_error *err) {
    struct lode_buf b = {0};
    const char *before = m->notes ? m->notes : m->source->notes;
    if (!*note)
        return 0;
    if (!lode_buf_addf(&b, "%s%s%s", before, *before ? "\n" : "", note))
        return lode_fail_nomem(err, "notes");
    lode_free(m->notes);
    m->notes = b.data;
    return 0;
}

/* Whether anything is to be streamed. */
static bool streams(const struct lode_model_opts *o) {
    return o->expert_cache > 0 || o->layer_cache > 0;
}

/* ---- devices ---- */

/* The graphs lie as the split says from now on. */
static void adopt(struct lode_model *m, struct lode_split *s) {
    for (int i = 0; i < LODE_STAGES; i++) {
        lode_plan_deinit(&m->plans[i]);
        m->plans[i] = s->plans[i];
        s->plans[i] = (struct lode_plan){0};
    }
    unsigned from_store = 0; /* places that pin weights: the host, and what stands in for devices */
    for (uint32_t p = 0; p < m->n_places; p++)
        from_store |= m->devices[p].cuda ? 0 : 1u << p;
    for (uint32_t i = 0; i < m->n_weights; i++)
        m->weights[i].elsewhere = s->uses[i] && !(s->uses[i] & from_store);
    lode_groups_drop(m->weights, m->groups, &m->n_groups);
    m->n_expert_groups = m->n_groups;
    for (uint32_t l = 0; l < m->n_kept; l++)
        m->kv[l].place = m->state[l].place = s->layers[l];
    lode_free(m->uses);
    m->uses = s->uses;
    s->uses = NULL;
    m->info.gpu_layers = s->n_gpu_layers;
    if (*s->note)
        memcpy(m->device_note, s->note, sizeof m->device_note);
}

/* Whether the weights have room on their devices. */
static bool have_room(const struct lode_model *m, const struct lode_split *s, struct lode_error *why) {
    for (uint32_t p = 1; p < m->n_places; p++) {
        uint64_t need = 0;
        for (uint32_t i = 0; i < m->n_weights; i++)
            need += s->uses[i] & 1u << p ? lode_cuda_weight_size(&m->weights[i]) : 0;
        const uint64_t free = m->devices[p].cuda ? lode_cuda_available(m->devices[p].cuda) : UINT64_MAX;
        if (need > free) {
            lode_fail(why, LODE_ERR_LIMIT, "--device", "the weights take %.0f MiB, but %.0f MiB of the memory of "
                      "'%s' are free", (double)need / 0x1p20, (double)free / 0x1p20,
                      lode_cuda_name(m->devices[p].cuda));
            return false;
        }
    }
    return true;
}

/* By what lode_model_split said; else all on the devices, or nothing where "auto" finds no room. */
static int choose_split(struct lode_model *m, struct lode_error *err) {
    struct lode_split s;
    struct lode_error why;
    const uint32_t all = m->hp.n_layers + 1;
    const uint32_t wanted = m->is_split ? m->gpu_layers : m->n_places == 1 ? 0 : all;
    /* what is read when it is used is computed on the host */
    const uint32_t cpu_experts = m->is_split ? m->cpu_experts : m->opts.expert_cache ? UINT32_MAX : 0;
    LODE_TRY(lode_split_make(&s, m, wanted, cpu_experts, m->has_beside, err));
    int rc = 0;
    if (!have_room(m, &s, &why)) {
        lode_split_free(&s);
        if (!m->any_device || m->is_split || m->n_ranks) {
            *err = why;
            return LODE_ERR_LIMIT;
        }
        rc = lode_split_make(&s, m, 0, 0, false, err);
        snprintf(m->device_note, sizeof m->device_note, "the GPU is not used: %.200s", why.text);
    }
    if (rc == 0)
        adopt(m, &s);
    lode_split_free(&s);
    return rc;
}

static bool runs_at(const struct lode_model *m, uint32_t place) {
    for (int i = 0; i < LODE_STAGES; i++)
        for (uint32_t k = 0; k < m->plans[i].n_cuts; k++)
            if (lode_plan_at(&m->plans[i], m->plans[i].cuts[k].place, place))
                return true;
    return false;
}

/* Devices get their weights; those that have nothing to do are given back. */
static int fill_devices(struct lode_model *m, struct lode_error *err) {
    for (uint32_t p = 1; p < m->n_places; p++) {
        struct lode_device *d = &m->devices[p];
        if (!d->cuda)
            continue;
        if (!runs_at(m, p)) {
            lode_cuda_close(d->cuda);
            d->cuda = NULL;
            m->info.n_gpus--;
            continue;
        }
        LODE_TRY(lode_cuda_load(d->cuda, m->source, m->weights, m->n_weights, m->uses,
                                (uint16_t)(1u << p), m->opts.progress, m->opts.progress_user, err));
        double seconds;
        m->info.uploaded += lode_cuda_uploaded(d->cuda, &seconds);
        m->info.upload_seconds += seconds;
        if (!m->info.on_gpu)
            m->info.device = lode_cuda_name(d->cuda);
        m->info.on_gpu = true;
    }
    return 0;
}

/* Of all its experts, wherever they run; uses and bytes are the caller's. */
static struct lode_cuda_experts_opts experts_opts(const struct lode_model *m) {
    return (struct lode_cuda_experts_opts){.graph = &m->graphs[LODE_BODY],
                                           .source = m->source,
                                           .weights = m->weights,
                                           .groups = m->groups,
                                           .float_act = m->opts.float_act,
                                           .fast = m->fast,
                                           .policy = m->opts.cache_policy};
}

static int size_experts(struct lode_model *m, struct lode_error *err) {
    const struct lode_cuda_experts_opts o = experts_opts(m);
    for (uint32_t p = 1; p < m->n_places; p++)
        if (m->devices[p].cuda)
            return lode_cuda_experts_sizes(m->devices[p].cuda, &o, &m->beside, err);
    return 0;
}

/* Room for experts beside the host.  Those that are mapped, and have room in memory beside what others hold, are
 * pinned there for the GPU to read. */
static int keep_experts(struct lode_model *m, struct lode_error *err) {
    const uint8_t at = m->plans[LODE_BODY].beside;
    struct lode_cuda_experts_opts o = experts_opts(m);
    struct lode_machine machine;
    uint64_t size = 0;
    if (at == LODE_HOST)
        return 0;
    for (uint32_t g = 0; g < m->n_expert_groups; g++)
        for (uint32_t k = 0; k < m->groups[g].n_weights; k++)
            size += m->weights[m->groups[g].weights[k]].size;
    lode_machine_probe(&machine);
    o.uses = m->uses;
    o.bytes = m->gpu_cache;
    o.may_pin = !streams(&m->opts) && !m->opts.direct && (!machine.ram_left || size < machine.ram_left);
    LODE_TRY(lode_cuda_keep_experts(m->devices[at].cuda, &o, err));
    const struct lode_weight *w = m->n_expert_groups ? &m->weights[m->groups[0].weights[0]] : NULL;
    const bool mapped = w && lode_source_data(m->source, w->home, w->offset, w->size);
    if (o.may_pin && mapped && !lode_cuda_fetches_experts(m->devices[at].cuda) && !*m->device_note)
        snprintf(m->device_note, sizeof m->device_note,
                 "the GPU cannot read experts where they are mapped: threads copy them for it");
    return 0;
}

/* By what the places that compute have for --numerics fast. */
static void name_numerics(struct lode_model *m) {
    const bool host = m->fast && runs_at(m, LODE_HOST);
    bool gpu = false;
    for (uint32_t p = 1; m->wants_fast && p < m->n_places; p++)
        gpu |= m->devices[p].cuda && lode_cuda_has_fast(m->devices[p].cuda);
    if (host || gpu)
        snprintf(m->numerics, sizeof m->numerics, "fast (%s%s%s)", host ? lode_fast_name(m->fast) : "",
                 host && gpu ? ", " : "", gpu ? "CUDA tensor cores" : "");
    else
        snprintf(m->numerics, sizeof m->numerics, "exact");
}

/* The lists of opts, which are the caller's strings. */
static int keep_lists(struct lode_model *m, struct lode_error *err) {
    struct lode_model_opts *o = &m->opts;
    m->any_device = !o->device || strcmp(o->device, "auto") == 0;
    if (o->tensor_devices)
        m->tensor_devices = lode_strndup(o->tensor_devices, strlen(o->tensor_devices));
    if (o->tensor_split)
        m->tensor_split = lode_strndup(o->tensor_split, strlen(o->tensor_split));
    const bool ok = (m->tensor_devices || !o->tensor_devices) && (m->tensor_split || !o->tensor_split);
    o->tensor_devices = o->tensor_split = NULL;
    return ok ? 0 : lode_fail_nomem(err, "options");
}

/* All but the weights. */
static int open_model(struct lode_model *m, const char *path, struct lode_error *err) {
    LODE_TRY(lode_source_open(&m->source, path, !m->opts.no_mmap, err));
    LODE_TRY(check_kind(m, err));
    LODE_TRY(load_tokenizer(m, err));
    if (m->opts.vocab_only)
        return describe(m, err);
    m->arch = lode_arch_find(m->source->arch);
    if (!m->arch && lode_arch_fits(m->source))
        m->arch = &lode_arch_standard;
    if (!m->arch)
        return unknown_arch(m, err);
    struct lode_build b = {.source = m->source, .arch = m->arch, .experts = m->opts.experts};
    int rc = lode_build_model(&b, m->graphs, err);
    lode_free(b.weight_of);
    m->hp = b.hp;
    m->kv = b.kv;
    m->state = b.state;
    m->n_kept = b.hp.n_layers;
    m->weights = b.weights;
    m->n_weights = b.n_weights;
    LODE_TRY(rc);
    LODE_TRY(keep_notes(m, b.note, err));
    const struct lode_plan_opts plan = {.float_act = m->opts.float_act};
    for (int i = 0; i < LODE_STAGES; i++)
        LODE_TRY(lode_plan_compile(&m->plans[i], &m->graphs[i], &plan, err));
    LODE_TRY(lode_split_devices(m, m->opts.device, err));
    for (uint32_t p = 1; p < m->n_places; p++)
        if (m->devices[p].cuda)
            LODE_TRY(keep_notes(m, lode_cuda_note(m->devices[p].cuda), err));
    m->opts.device = NULL; /* the caller's string */
    LODE_TRY(lode_groups_of_experts(&m->graphs[LODE_BODY], m->weights, &m->groups, &m->n_groups,
                                    err));
    m->n_expert_groups = m->n_groups;
    LODE_TRY(lode_model_find_experts(m, err));
    LODE_TRY(size_experts(m, err));
    LODE_TRY(describe(m, err));
    const int rows = lode_split_by_rows(m, err);
    return rows > 0 ? lode_shard_model(m, err) : rows;
}

static int fill(struct lode_model *m, lode_store_maker *make, void *user, struct lode_error *err) {
    LODE_TRY(choose_split(m, err));
    if (m->opts.layer_cache)
        LODE_TRY(lode_groups_of_layers(&m->graphs[LODE_BODY], m->source, m->weights, m->opts.layer_cache,
                                       &m->groups, &m->n_groups, &m->layer_room, err));
    LODE_TRY(make(&m->store, user, m, err));
    LODE_TRY(fill_devices(m, err));
    LODE_TRY(keep_experts(m, err));
    name_numerics(m);
    m->info.vectors_only = m->arch->encoder || m->hp.both_ways;
    m->opts.progress = NULL;
    m->opts.progress_user = NULL;
    m->opts.cache_policy = m->opts.hot = NULL; /* the caller's strings */
    return 0;
}

int lode_model_open(struct lode_model **out, const char *path, const struct lode_model_opts *opts,
                    struct lode_error *err) {
    *out = NULL;
    struct lode_model *m = LODE_NEW(struct lode_model);
    if (!m)
        return lode_fail_nomem(err, "model");
    if (opts)
        m->opts = *opts;
    int rc = choose_isa(m, m->opts.isa, err);
    rc = rc < 0 ? rc : choose_numerics(m, m->opts.numerics, err);
    rc = rc < 0 ? rc : lode_split_mode(m, m->opts.split_mode, err);
    m->opts.split_mode = NULL; /* the caller's string */
    if (rc == 0)
        rc = keep_lists(m, err);
    if (rc == 0)
        rc = open_model(m, path, err);
    if (rc < 0)
        lode_model_free(m);
    else
        *out = m;
    return rc;
}

int lode_model_load_with(struct lode_model **out, const char *path,
                         const struct lode_model_opts *opts, lode_store_maker *make, void *user,
                         struct lode_error *err) {
    LODE_TRY(lode_model_open(out, path, opts, err));
    const int rc = (*out)->opts.vocab_only ? 0 : fill(*out, make, user, err);
    if (rc < 0) {
        lode_model_free(*out);
        *out = NULL;
    }
    return rc;
}

static int from_file(struct lode_store **out, void *user, const struct lode_model *m,
                     struct lode_error *err) {
    const struct lode_model_opts *o = &m->opts;
    const uint32_t n_layers = m->n_groups - m->n_expert_groups;
    /* a fault of a mapped page brings up to 2 MB of the file around it, which no budget would have counted */
    struct lode_file_store_opts resident = {.direct = o->direct || (streams(o) && !o->mlock),
                                            .mlock = o->mlock,
                                            .no_checksum = o->no_checksum,
                                            .prefault = o->prefault,
                                            .progress = o->progress,
                                            .progress_user = o->progress_user};
    (void)user;
    if (!streams(o))
        return lode_file_store_create(out, m->source, m->weights, m->n_weights, &resident, err);
    if (o->expert_cache && m->n_expert_groups == 0)
        return lode_fail(err, LODE_ERR_ARG, "--expert-cache",
                         "the model has no experts: all of it is used for each token");
    struct lode_store *layers = NULL;
    resident.skip_first = o->expert_cache ? 0 : m->n_expert_groups;
    resident.n_skip = m->n_groups - resident.skip_first;
    if (m->layer_room)
        LODE_TRY(lode_stream_create(&layers, m->source, m->weights, m->n_weights, m->groups,
                                    m->n_expert_groups, n_layers,
                                    &(struct lode_stream_opts){.budget = m->layer_room,
                                                               .in_turn = true,
                                                               .no_checksum = o->no_checksum,
                                                               .resident = resident},
                                    err));
    if (!o->expert_cache) {
        *out = layers;
        return layers ? 0
                      : lode_file_store_create(out, m->source, m->weights, m->n_weights, &resident,
                                               err);
    }
    struct lode_stream_opts stream = {.budget = o->expert_cache,
                                      .policy = o->cache_policy,
                                      .no_prefetch = o->no_prefetch,
                                      .no_checksum = o->no_checksum,
                                      .under = layers,
                                      .resident = resident};
    uint32_t *hot = NULL;
    int rc = o->hot ? lode_hot_read(m, o->hot, &hot, &stream.n_hot, err) : 0;
    stream.hot = hot;
    if (rc == 0)
        rc = lode_stream_create(out, m->source, m->weights, m->n_weights, m->groups, 0,
                                m->n_expert_groups, &stream, err);
    else if (layers)
        layers->ops->free(layers);
    lode_free(hot);
    return rc;
}

int lode_model_load(struct lode_model **out, const char *path, const struct lode_model_opts *opts,
                    struct lode_error *err) {
    return lode_model_load_with(out, path, opts, from_file, NULL, err);
}

int lode_model_fill(struct lode_model *m, uint64_t expert_cache, uint64_t layer_cache,
                    struct lode_error *err) {
    if (m->store || m->opts.vocab_only)
        return lode_fail(err, LODE_ERR_ARG, m->source->path, "its weights are there already, or not "
                         "to be: nothing to fill");
    m->opts.expert_cache = expert_cache;
    m->opts.layer_cache = layer_cache;
    return fill(m, from_file, NULL, err);
}

void lode_model_split(struct lode_model *m, uint32_t gpu_layers, uint32_t cpu_experts) {
    m->gpu_layers = gpu_layers;
    m->cpu_experts = cpu_experts;
    m->is_split = true;
}

void lode_model_gpu_cache(struct lode_model *m, uint64_t bytes) {
    m->gpu_cache = bytes;
    m->has_beside = true;
}

uint64_t lode_model_layers_size(const struct lode_model *m) {
    return lode_layers_size(&m->graphs[LODE_BODY], m->source, m->weights, NULL);
}

bool lode_model_lost(const struct lode_model *m) {
    for (uint32_t p = 0; p < LODE_PLACES; p++)
        if (m->devices[p].cuda && lode_cuda_lost(m->devices[p].cuda))
            return true;
    return false;
}

void lode_model_free(struct lode_model *m) {
    if (!m)
        return;
    for (uint32_t p = 0; p < LODE_PLACES; p++)
        lode_cuda_close(m->devices[p].cuda);
    if (m->store)
        m->store->ops->free(m->store);
    for (int i = 0; i < LODE_STAGES; i++) {
        lode_plan_deinit(&m->plans[i]);
        lode_graph_free(&m->graphs[i]);
    }
    lode_free(m->kv);
    lode_free(m->state);
    lode_free(m->weights);
    lode_free(m->groups);
    lode_free(m->chat_template);
    lode_free(m->name);
    lode_free(m->type);
    lode_free(m->notes);
    lode_free(m->expert_bytes);
    lode_free(m->uses);
    lode_free(m->tensor_devices);
    lode_free(m->tensor_split);
    lode_tokenizer_free(m->tokenizer);
    lode_source_close(m->source);
    lode_free(m);
}

const struct lode_model_info *lode_model_info(const struct lode_model *m) { return &m->info; }

const struct lode_tokenizer *lode_model_tokenizer(const struct lode_model *m) {
    return m->tokenizer;
}

bool lode_model_sampling_default(const struct lode_model *m, const char *key, double *value) {
    char full[128];
    snprintf(full, sizeof full, "general.sampling.%s", key);
    return lode_source_f64(m->source, full, value);
}

int lode_device_count(struct lode_error *why) { return lode_cuda_count(why); }

int lode_device_info(int index, char name[256], uint64_t *memory, struct lode_error *err) {
    return lode_cuda_info(index, name, memory, err);
}

int lode_device_speeds(int index, double *memory, double *bus, bool *fast, struct lode_error *err) {
    struct lode_cuda *c;
    *memory = *bus = 0;
    LODE_TRY(lode_cuda_open(&c, index, err));
    if (fast)
        *fast = lode_cuda_has_fast(c);
    const int rc = lode_cuda_speeds(c, memory, bus, err);
    lode_cuda_close(c);
    return rc;
}

const char *const *lode_model_archs(void) {
    static const char *const names[] = {
#define NAME(arch) lode_arch_##arch.name,
        LODE_ARCH_LIST(NAME)
#undef NAME
            NULL};
    return names;
}
