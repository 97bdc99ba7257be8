/* chain_share.cuh - all heads' chains of pages (attention_fast.cuh), one head's after the other's, shared out evenly over blocks of threads: so a
 * block may have the last chains of a head and the first of the next, and no multiprocessor has more than its part. */
#ifndef LODE_CUDA_CHAIN_SHARE_CUH
#define LODE_CUDA_CHAIN_SHARE_CUH

#include "attention.cuh"

/* A block's share of `heads` times so many chains: n, no more than a head has, from the first one on, which is number `first` of `head`. */
struct chain_share {
    uint32_t of_head, head, first, n;
    DEVICE_MEMBER bool has_next_head() const { return first + n > of_head; }
};
/* Of gridDim.x blocks, no fewer than heads, that of blockIdx.x; pages, chains: that a row sees, that it may have. */
DEVICE struct chain_share chain_share_of(uint32_t heads, uint32_t pages, uint32_t chains) {
    const uint32_t of_head = min(pages, chains), all = heads * of_head, from = blockIdx.x * all / gridDim.x;
    const uint32_t head = from / of_head;
    return {of_head, head, from - head * of_head, (blockIdx.x + 1) * all / gridDim.x - from};
}

/* Every n-th chain of a share, page by page. */
struct chains_walk {
    uint32_t left, every;       /* chains; of the share's */
    uint32_t of_head, pages;    /* chains of a head; its pages */
    uint32_t apart;             /* from a page of a chain to the next */
    uint32_t head, chain, page; /* head: 0 the share's first, 1 the next */
    DEVICE_MEMBER chains_walk(const struct chain_share &s, uint32_t pages, uint32_t apart, uint32_t at, uint32_t every)
        : left(at < s.n ? (s.n - at + every - 1) / every : 0), every(every), of_head(s.of_head), pages(pages), apart(apart), head(0), chain(s.first + at) {
        settle();
    }
    DEVICE_MEMBER bool more() const { return left > 0; }
    DEVICE_MEMBER bool begins() const { return page == chain; }
    DEVICE_MEMBER bool ends() const { return page + apart >= pages; }
    DEVICE_MEMBER void next() {
        page += apart;
        if (page >= pages) {
            chain += every, left--;
            settle();
        }
    }

private:
    DEVICE_MEMBER void settle() {
        if (chain >= of_head)
            chain -= of_head, head++;
        page = chain;
    }
};

#endif
