// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Latency histograms of block requests, one per device and direction.
//
// A request's total time runs from its allocation, the moment from which diskstats counts it too, to its completion. Its
// device time runs from its dispatch to the driver. scripts/bpf compiles this file to latency.bpf.o.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int (*name)[value]
#define __type(name, type) typeof(type) *name

#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_PERCPU_HASH 5
#define BPF_NOEXIST 1

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;

// The fields that are read; the loader puts in the running kernel's offsets.
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct gendisk {
    int major;
    int first_minor;
};
struct request_queue {
    struct gendisk *disk;
};
struct request {
    struct request_queue *q;
    u32 cmd_flags;
    u32 __data_len;
    u64 start_time_ns;
};
#pragma clang attribute pop

// 16 buckets for each power of two from 2^10 ns to 2^36 ns, with all below in the first and all above in the last.
#define SUB_BITS 4
#define SUB (1 << SUB_BITS)
#define FIRST_POWER 10
#define POWERS 26
#define BUCKETS (POWERS * SUB)

// Fixed layout: the reader takes it as an array of u64.
struct figures {
    u64 total_ns;
    u64 device_ios;
    u64 device_ns;
    u64 buckets[BUCKETS];
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 65536);
    __type(key, u64);
    __type(value, u64);
} issued SEC(".maps");

// The key is major << 32 | minor << 8 | kind. A value is 3 KiB on every CPU: the loader sets the number of entries by the
// number of devices.
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_HASH);
    __uint(max_entries, 64);
    __type(key, u64);
    __type(value, struct figures);
} latency SEC(".maps");

static const struct figures zero;

static __attribute__((always_inline)) u32 log2_of(u64 value) {
    u32 power = 0, high = value >> 32, low = value;
    if (high) { power = 32; low = high; }
    if (low >> 16) { power += 16; low >>= 16; }
    if (low >> 8) { power += 8; low >>= 8; }
    if (low >> 4) { power += 4; low >>= 4; }
    if (low >> 2) { power += 2; low >>= 2; }
    return power + (low >> 1);
}

static __attribute__((always_inline)) u32 bucket_of(u64 ns) {
    if (ns < (1ull << FIRST_POWER)) return 0;
    u32 power = log2_of(ns);
    if (power >= FIRST_POWER + POWERS) return BUCKETS - 1;
    return (power - FIRST_POWER) * SUB + ((ns >> (power - SUB_BITS)) & (SUB - 1));
}

SEC("tp_btf/block_rq_issue")
int block_rq_issue(u64 *ctx) {
    u64 request = ctx[0], now = bpf_ktime_get_ns();
    bpf_map_update_elem(&issued, &request, &now, 0);
    return 0;
}

SEC("tp_btf/block_rq_complete")
int block_rq_complete(u64 *ctx) {
    struct request *rq = (struct request *)ctx[0];
    u32 done_bytes = ctx[2];
    // A part of the request: the rest follows.
    if (done_bytes < rq->__data_len) return 0;
    u64 now = bpf_ktime_get_ns(), address = (u64)rq;
    u64 *at = bpf_map_lookup_elem(&issued, &address);
    u64 issued_ns = at ? *at : 0;
    if (at) bpf_map_delete_elem(&issued, &address);
    u32 kind = rq->cmd_flags & 0xff;
    struct gendisk *disk = rq->q->disk;
    u64 began_ns = rq->start_time_ns;
    // Reads are 0, writes 1. What diskstats does not count has no time of beginning.
    if (kind > 1 || !disk || !began_ns || now < began_ns) return 0;
    u64 key = (u64)(u32)disk->major << 32 | (u64)(u32)disk->first_minor << 8 | kind;
    struct figures *of = bpf_map_lookup_elem(&latency, &key);
    if (!of) {
        bpf_map_update_elem(&latency, &key, &zero, BPF_NOEXIST);
        of = bpf_map_lookup_elem(&latency, &key);
        if (!of) return 0;
    }
    of->total_ns += now - began_ns;
    if (issued_ns && now >= issued_ns) {
        of->device_ios += 1;
        of->device_ns += now - issued_ns;
    }
    u64 bucket = bucket_of(now - began_ns);
    // One register for comparison and use: else the verifier does not see that the index is bounded.
    asm volatile("" : "+r"(bucket));
    if (bucket < BUCKETS) of->buckets[bucket] += 1;
    return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
