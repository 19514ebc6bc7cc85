// Decides whether a pod's traffic is to be intercepted. Used by the programs that rewrite, and by the guards that
// remain when those are gone.
#pragma once

#define AF_INET 2
#define AF_INET6 10
#define DNS_PORT 53
#define ECONNREFUSED 111

// The cgroup of the holder and its proxy, in case it is below that of the pods. Set when the programs are loaded.
const volatile __u64 own_cgroup = 0;

// Reads a field of a context exactly here. Otherwise the compiler merges the reads for both address families into one
// at a computed offset, which the verifier refuses.
#define READ(field)                     \
    ({                                  \
        __u32 value = (field);          \
        asm volatile("" : "+r"(value)); \
        value;                          \
    })

static __always_inline void mapped(struct address *to, __u32 v4)
{
    to->words[0] = 0;
    to->words[1] = 0;
    to->words[2] = bpf_htonl(0xffff);
    to->words[3] = v4;
}

// Stores the address of one end (`local` or `remote`) of a context, for all types of contexts that have these fields.
#define ADDRESS(to, ctx, end)                              \
    do {                                                   \
        struct address *address = (to);                    \
        if ((ctx)->family == AF_INET) {                    \
            mapped(address, READ((ctx)->end##_ip4));       \
        } else {                                           \
            address->words[0] = (ctx)->end##_ip6[0];       \
            address->words[1] = (ctx)->end##_ip6[1];       \
            address->words[2] = (ctx)->end##_ip6[2];       \
            address->words[3] = (ctx)->end##_ip6[3];       \
        }                                                  \
    } while (0)

static __always_inline bool is_v4(const struct address *address)
{
    return address->words[0] == 0 && address->words[1] == 0 && address->words[2] == bpf_htonl(0xffff);
}

static __always_inline bool is_loopback(const struct address *address)
{
    if (is_v4(address))
        return (address->words[3] & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000);
    return address->words[0] == 0 && address->words[1] == 0 && address->words[2] == 0 &&
           address->words[3] == bpf_htonl(1);
}

// The unspecified address, which means this host when a program connects to it.
static __always_inline bool is_unspecified(const struct address *address)
{
    return (is_v4(address) || address->words[2] == 0) && address->words[0] == 0 &&
           address->words[1] == 0 && address->words[3] == 0;
}

static __always_inline bool is_own(__u64 netns, const struct address *address)
{
    __u64 *owner = bpf_map_lookup_elem(&addresses, address);
    return owner && *owner == netns;
}

static __always_inline bool is_among(const struct port_range *ranges, __u8 count, __u16 port)
{
    for (int i = 0; i < MAX_PORT_RANGES; i++) {
        if (i >= count)
            return false;
        if (ranges[i].first <= port && port <= ranges[i].last)
            return true;
    }
    return false;
}

// Counter of the connections in their handshake.
static __always_inline __u32 *all_handshakes(void)
{
    __u32 zero = 0;
    return bpf_map_lookup_elem(&crowd, &zero);
}

// Whether a pod with `count` connections in their handshake may have one more, when all pods together have `all`.
static __always_inline bool has_room(__u32 count, __u32 all)
{
    return count < (all < MAX_ALL_HANDSHAKES / 2 ? MAX_HANDSHAKES : MIN_HANDSHAKES);
}

// Counts that a table was full.
static __always_inline void count_full(__u32 table)
{
    __u64 *count = bpf_map_lookup_elem(&full, &table);
    if (count)
        __sync_fetch_and_add(count, 1);
}

static __always_inline bool is_served(const struct pod *pod)
{
    __u32 zero = 0;
    __u32 *now = bpf_map_lookup_elem(&epoch, &zero);
    return now && *now == pod->epoch;
}

// Whether traffic of a pod to this destination belongs to the mesh. `port` is in host order.
static __always_inline bool is_concerned(__u64 netns, const struct pod *pod, const struct address *to,
                                         __u16 port)
{
    if (is_loopback(to) || is_unspecified(to))
        return false;
    if (is_among(pod->outbound, pod->outbound_ranges, port))
        return false;
    if (is_own(netns, to))
        return false;
    struct network network = {.prefix = 160, .address = *to};
    if (pod->flags & POD_NETWORKS) {
        network.pod = pod->id;
        __u8 *excluded = bpf_map_lookup_elem(&networks, &network);
        if (excluded && *excluded)
            return false;
        network.pod = 0;
    }
    __u8 *inside = bpf_map_lookup_elem(&networks, &network);
    return inside && *inside;
}
