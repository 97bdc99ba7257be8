/* wgmma.cuh - Hopper's own instructions: products of warpgroups, bulk copies, barriers in shared
 * memory.
 *
 * An operand of wgmma is a panel: rows of 128 bytes (64 numbers of 16 bits), whose 16-byte pieces
 * lie in the order that the hardware calls a 128-byte swizzle: piece c of row r at c ^ (r % 8).
 * Panels start at multiples of 1024.
 *
 * Accumulators of a product n columns wide, d (n / 2) for a thread of warp w, lane l of the
 * warpgroup: d[4 t + e] is row 16 w + l / 4 + 8 (e / 2), column 8 t + 2 (l % 4) + e % 2. */
#ifndef LODE_CUDA_WGMMA_CUH
#define LODE_CUDA_WGMMA_CUH

#include "common.cuh"

/* Where 16-byte piece c of row r lies in a panel. */
DEVICE uint32_t in_panel(uint32_t r, uint32_t c) { return r * 128 + ((c ^ (r & 7)) << 4); }

/* ---- barriers ---- */

/* Here and below: barriers by their shared address too, so that who has many does not find it anew each time. */
DEVICE void barrier_init(uint32_t b, uint32_t n) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(b), "r"(n) : "memory"); }
DEVICE void barrier_init(uint64_t *b, uint32_t n) { barrier_init(shared_address(b), n); }
DEVICE void barrier_arrive(uint32_t b) { asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(b) : "memory"); }
DEVICE void barrier_arrive(uint64_t *b) { barrier_arrive(shared_address(b)); }
/* Arrives when the thread's asynchronous copies until now have come. */
DEVICE void barrier_arrive_copied(uint32_t b) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(b) : "memory");
}
DEVICE void barrier_arrive_copied(uint64_t *b) { barrier_arrive_copied(shared_address(b)); }
/* The barrier's phase also waits for so many bytes of bulk copies. */
DEVICE void barrier_expect(uint64_t *b, uint32_t bytes) {
    asm volatile(
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)),
        "r"(bytes)
        : "memory");
}
DEVICE void barrier_wait(uint32_t b, uint32_t parity) {
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
                 "@!p bra again;\n"
                 "}" ::"r"(b),
                 "r"(parity)
                 : "memory");
}
DEVICE void barrier_wait(uint64_t *b, uint32_t parity) { barrier_wait(shared_address(b), parity); }
/* One thread of a warp, all of which come here.  What a bulk copy is told has to be one for a warp; compilers know it to be of one
 * thread then, and do not look for others with other addresses. */
DEVICE bool elected() {
    uint32_t is;
    asm volatile("{ .reg .pred p;\n"
                 "elect.sync _|p, 0xffffffff;\n"
                 "selp.u32 %0, 1, 0, p; }"
                 : "=r"(is));
    return is;
}
/* Barriers that were initialised are seen by copies too. */
DEVICE void barriers_made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
/* How the second cache keeps what copies bring that are told so: read once, it leaves before all else. */
DEVICE uint64_t read_once() {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
DEVICE uint64_t read_again() {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
DEVICE void bulk_copy(uint32_t to, const void *from, uint32_t bytes, uint32_t b) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
                 "r"(bytes), "r"(b)
                 : "memory");
}
DEVICE void bulk_copy(void *to, const void *from, uint32_t bytes, uint64_t *b) {
    bulk_copy(shared_address(to), from, bytes, shared_address(b));
}
DEVICE void bulk_copy(uint32_t to, const void *from, uint32_t bytes, uint32_t b, uint64_t policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to), "l"(from),
                 "r"(bytes), "r"(b), "l"(policy)
                 : "memory");
}
/* ---- clusters: blocks of threads that share what they load ---- */

DEVICE uint32_t cluster_rank() {
    uint32_t r;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}
/* All threads of all its blocks. */
DEVICE void cluster_sync() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/* At the same barrier of another block. */
DEVICE void barrier_arrive_at(uint64_t *b, uint32_t rank) {
    asm volatile("{ .reg .b32 at;\n"
                 "mapa.shared::cluster.u32 at, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [at]; }" ::"r"(shared_address(b)),
                 "r"(rank)
                 : "memory");
}
/* The one arrival that a phase waits for, and so many bytes. */
DEVICE void barrier_arrive_expect(uint32_t b, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes) : "memory");
}
DEVICE void barrier_arrive_expect(uint64_t *b, uint32_t bytes) { barrier_arrive_expect(shared_address(b), bytes); }
/* To the same place of all blocks of the mask, whose same barriers are told; not SHARED: to this block. */
template <bool SHARED>
DEVICE void bulk_copy_to(void *to, const void *from, uint32_t bytes, uint64_t *b, uint16_t mask) {
    if (!SHARED)
        return bulk_copy(to, from, bytes, b);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(b)), "h"(mask)
                 : "memory");
}
/* A box of a matrix that is mapped as (lines, rows, bytes of a line), from a row and line on: a line of each row, then their next
 * ones; zeros where there is nothing. */
DEVICE void bulk_lines(uint32_t to, const struct lode_cuda_map *map, uint32_t line, uint32_t row, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
                 "l"(map), "r"(0), "r"(row), "r"(line), "r"(barrier)
                 : "memory");
}
/* Where in the map of all memory rows of PITCH bytes lie that begin at `from`, which is a multiple of that. */
struct map_place {
    uint32_t row, high;
};
template <int PITCH> DEVICE struct map_place map_place_of(const uint8_t *from) {
    const uint64_t at = (uint64_t)(uintptr_t)from - LODE_CUDA_MAP_FROM;
    return {(uint32_t)at % (1u << 30) / PITCH, (uint32_t)(at >> 30)};
}
/* A box of such rows, one after the other, as panels; map: of all memory (LODE_CUDA_MAP_FROM). */
template <int PITCH> DEVICE void bulk_panels(uint32_t to, const struct lode_cuda_map *map, const uint8_t *from, uint32_t barrier) {
    const struct map_place at = map_place_of<PITCH>(from);
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
                 "l"(map), "r"(0), "r"(at.row), "r"(0), "r"(at.high), "r"(barrier)
                 : "memory");
}
template <int PITCH>
DEVICE void bulk_panels(uint32_t to, const struct lode_cuda_map *map, const uint8_t *from, uint32_t barrier, uint64_t policy) {
    const struct map_place at = map_place_of<PITCH>(from);
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(to),
                 "l"(map), "r"(0), "r"(at.row), "r"(0), "r"(at.high), "r"(barrier), "l"(policy)
                 : "memory");
}
/* A page of rows of any multiple of 64 numbers of 16 bits, which begins at a multiple of 128 bytes, as panels; map: of all memory
 * (lode_cuda_map_long_rows). */
DEVICE void bulk_long_panels(uint32_t to, const struct lode_cuda_map *map, const uint8_t *from, uint32_t barrier) {
    const struct map_place at = map_place_of<128>(from);
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %2, %2, %3, %4}], [%5];" ::"r"(to),
                 "l"(map), "r"(0), "r"(at.row), "r"(at.high), "r"(barrier)
                 : "memory");
}
/* A box of a matrix from row `row` and number `k` on, as a panel; zeros where there is nothing. */
template <bool SHARED>
DEVICE void bulk_panel_to(void *to, const struct lode_cuda_map *map, uint32_t k, uint32_t row, uint64_t *b,
                          uint16_t mask) {
    if (SHARED)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                     ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
                     "l"(map), "r"(k), "r"(row), "r"(shared_address(b)), "h"(mask)
                     : "memory");
    else
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
                     "l"(map), "r"(k), "r"(row), "r"(shared_address(b))
                     : "memory");
}

/* What was stored to shared memory will be read by wgmma. */
DEVICE void stored_for_wgmma() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* ---- products ---- */

DEVICE uint64_t panel_at(const void *p) {
    return (uint64_t)(shared_address(p) >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
/* Narrower panels, 64 and 32 bytes a row: piece c of row r lies at c ^ r / 2 % 4, at c ^ r / 4 % 2.
 */
DEVICE uint64_t panel_64_at(const void *p) {
    return (uint64_t)(shared_address(p) >> 4 & 0x3fff) | 1ull << 16 | 32ull << 32 | 2ull << 62;
}
DEVICE uint64_t panel_32_at(const void *p) {
    return (uint64_t)(shared_address(p) >> 4 & 0x3fff) | 1ull << 16 | 16ull << 32 | 3ull << 62;
}
/* The lower half of panel_at's, whose upper half is the same for all panels of 128 bytes a row: sums of 64 bits with carries cost a fifth of
 * a kernel's uniform instructions.  p: an address in shared memory. */
DEVICE uint32_t panel_low(uint32_t p) { return (p >> 4 & 0x3fff) | 1u << 16; }
/* The same of panels that are taken by columns: 64 of b's columns each, a row for each number of K; from one panel to the next `apart` bytes. */
DEVICE uint32_t turned_panels_low(uint32_t p, uint32_t apart) { return (p >> 4 & 0x3fff) | apart >> 4 << 16; }
#define PANEL_HIGH "0x40000040"
DEVICE uint32_t panel_bytes_at(const void *p) { return panel_low(shared_address(p)); }
/* The next 32 bytes of a panel's rows: 16 numbers of 16 bits. */
#define PANEL_STEP 2
/* n rows of a panel further. */
#define PANEL_ROWS(n) ((n) * 128 >> 4)

DEVICE void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

#define D8(d, i)                                                                                   \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define D8_OF(d) D8(d, 0)
#define D16(d) D8(d, 0), D8(d, 8)
#define D32_AT(d, i) D8(d, i), D8(d, i + 8), D8(d, i + 16), D8(d, i + 24)
#define D32(d) D32_AT(d, 0)
#define D64(d) D32(d), D32_AT(d, 32)
#define D128(d) D64(d), D32_AT(d, 64), D32_AT(d, 96)
#define NAMES8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define NAMES16 NAMES8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define NAMES32 NAMES16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define NAMES64                                                                                    \
    NAMES32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,"    \
            "%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define NAMES128                                                                                   \
    NAMES64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,"    \
            "%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103," \
            "%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,"     \
            "%120,%121,%122,%123,%124,%125,%126,%127"

/* d = a b + (add ? d : 0) for 64 rows of a, n of b, 16 numbers of K. */
#define WGMMA(name, type, n, d_of, names, a_at, b_at, p_at)                                        \
    DEVICE void name(float(&d)[n / 2], uint64_t a, uint64_t b, int add) {                          \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, " p_at ", 0;\n"                               \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" names    \
                     "}, " a_at ", " b_at ", p, 1, 1, 0, 0; }"                                     \
                     : d_of(d)                                                                     \
                     : "l"(a), "l"(b), "r"(add));                                                  \
    }
WGMMA(wgmma_f16, "f16", 64, D32, NAMES32, "%32", "%33", "%34")
WGMMA(wgmma_f16, "f16", 128, D64, NAMES64, "%64", "%65", "%66")
WGMMA(wgmma_f16, "f16", 256, D128, NAMES128, "%128", "%129", "%130")
WGMMA(wgmma_bf16, "bf16", 128, D64, NAMES64, "%64", "%65", "%66")

/* The same of a in registers: r[0] and r[2] of row 16 w + l / 4, r[1] and r[3] 8 further, r[2] and r[3]
 * of the second half of K.  Thread l has numbers 2 (l % 4) and the next of each half of 16 (halves),
 * 4 (l % 4) and the next three of each half of 32 (bytes). */
#define WGMMA_R(name, n, d_of, names, a_at, b_at, p_at)                                            \
    DEVICE void name(float(&d)[n / 2], const uint32_t (&r)[4], uint64_t b, int add) {              \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, " p_at ", 0;\n"                               \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.f16.f16 {" names              \
                     "}, {" a_at "}, " b_at ", p, 1, 1, 0; }"                                      \
                     : d_of(d)                                                                     \
                     : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "l"(b), "r"(add));              \
    }
WGMMA_R(wgmma_f16, 16, D8_OF, NAMES8, "%8,%9,%10,%11", "%12", "%13")
WGMMA_R(wgmma_f16, 32, D16, NAMES16, "%16,%17,%18,%19", "%20", "%21")
WGMMA_R(wgmma_f16, 64, D32, NAMES32, "%32,%33,%34,%35", "%36", "%37")
WGMMA_R(wgmma_f16, 128, D64, NAMES64, "%64,%65,%66,%67", "%68", "%69")

/* By panel_low's addresses: 64 columns, a and b in panels; and b turned, a in registers. */
#define WGMMA_LOW(type)                                                                            \
    DEVICE void wgmma_low_##type(float(&d)[32], uint32_t a, uint32_t b, int add) {                  \
        asm volatile("{ .reg .pred p; .reg .b64 of_a, of_b; setp.ne.b32 p, %34, 0;\n"              \
                     "mov.b64 of_a, {%32, " PANEL_HIGH "}; mov.b64 of_b, {%33, " PANEL_HIGH "};\n" \
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32." #type "." #type " {" NAMES32    \
                     "}, of_a, of_b, p, 1, 1, 0, 0; }"                                             \
                     : D32(d)                                                                      \
                     : "r"(a), "r"(b), "r"(add));                                                  \
    }
#define WGMMA_TURNED(type, n, d_of, names, a_at, b_at, p_at)                                       \
    DEVICE void wgmma_turned_##type(float(&d)[n / 2], const uint32_t (&r)[4], uint32_t b, int add) { \
        asm volatile("{ .reg .pred p; .reg .b64 of_b; setp.ne.b32 p, " p_at ", 0;\n"               \
                     "mov.b64 of_b, {" b_at ", " PANEL_HIGH "};\n"                                 \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type " {" names  \
                     "}, {" a_at "}, of_b, p, 1, 1, 1; }"                                          \
                     : d_of(d)                                                                     \
                     : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(b), "r"(add));              \
    }
#define WGMMA_LOW_OF(type)                                                                         \
    WGMMA_LOW(type)                                                                                \
    WGMMA_TURNED(type, 64, D32, NAMES32, "%32,%33,%34,%35", "%36", "%37")                          \
    WGMMA_TURNED(type, 128, D64, NAMES64, "%64,%65,%66,%67", "%68", "%69")
WGMMA_LOW_OF(f16)
WGMMA_LOW_OF(bf16)

/* Bytes, signed (s) and unsigned (u) of a and b, 32 numbers of K; d are integers.  b: where a panel lies (panel_bytes_at). */
#define I8(d, i)                                                                                   \
    "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3]), "+r"(d[i + 4]), "+r"(d[i + 5]),    \
        "+r"(d[i + 6]), "+r"(d[i + 7])
#define I8_OF(d) I8(d, 0)
#define I16(d) I8(d, 0), I8(d, 8)
#define I32_AT(d, i) I8(d, i), I8(d, i + 8), I8(d, i + 16), I8(d, i + 24)
#define I32(d) I32_AT(d, 0)
#define I64(d) I32(d), I32_AT(d, 32)
#define WGMMA_BYTES(name, types, n, d_of, names, a_at, b_at, p_at)                                 \
    DEVICE void name(uint32_t(&d)[n / 2], const uint32_t (&r)[4], uint32_t b, int add) {           \
        asm volatile("{ .reg .pred p; .reg .b64 at; setp.ne.b32 p, " p_at ", 0;\n"                 \
                     "mov.b64 at, {" b_at ", " PANEL_HIGH "};\n"                                  \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k32.s32." types " {" names "}, {" a_at \
                     "}, at, p; }"                                                                 \
                     : d_of(d)                                                                     \
                     : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(b), "r"(add));              \
    }
#define WGMMA_BYTES_OF(name, types)                                                                \
    WGMMA_BYTES(name, types, 16, I8_OF, NAMES8, "%8,%9,%10,%11", "%12", "%13")                     \
    WGMMA_BYTES(name, types, 32, I16, NAMES16, "%16,%17,%18,%19", "%20", "%21")                    \
    WGMMA_BYTES(name, types, 64, I32, NAMES32, "%32,%33,%34,%35", "%36", "%37")                    \
    WGMMA_BYTES(name, types, 128, I64, NAMES64, "%64,%65,%66,%67", "%68", "%69")
WGMMA_BYTES_OF(wgmma_ss, "s8.s8")
WGMMA_BYTES_OF(wgmma_su, "s8.u8")
WGMMA_BYTES_OF(wgmma_us, "u8.s8")
WGMMA_BYTES_OF(wgmma_uu, "u8.u8")

/* Waits until at most `pending` of the groups are under way. */
template <int pending> DEVICE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
/* d is one of those that have ended. */
#define WGMMA_WAIT(type, n, d_of)                                                                  \
    template <int pending> DEVICE void wgmma_wait(type(&d)[n]) {                                   \
        asm volatile("wgmma.wait_group.sync.aligned %" #n ";"                                      \
                     : d_of(d)                                                                     \
                     : "n"(pending)                                                                \
                     : "memory");                                                                  \
    }
WGMMA_WAIT(float, 8, D8_OF)
WGMMA_WAIT(float, 16, D16)
WGMMA_WAIT(float, 32, D32)
WGMMA_WAIT(float, 64, D64)
WGMMA_WAIT(float, 128, D128)
WGMMA_WAIT(uint32_t, 8, I8_OF)
WGMMA_WAIT(uint32_t, 16, I16)
WGMMA_WAIT(uint32_t, 32, I32)
WGMMA_WAIT(uint32_t, 64, I64)

/* Registers of a role's threads: those that unpack give theirs to those that multiply. */
template <int n> DEVICE void keep_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n));
}
template <int n> DEVICE void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n));
}

#endif
