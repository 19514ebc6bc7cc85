// Inbound connections, which arrive in a pod's network namespace.
#pragma once

#define LOOPBACK_IFINDEX 1

static __always_inline bool is_same(const struct address *a, const struct address *b)
{
    return a->words[0] == b->words[0] && a->words[1] == b->words[1] && a->words[2] == b->words[2] &&
           a->words[3] == b->words[3];
}

// Whether the connection comes from the pod itself, or from the proxy inside it. Both use lo, but for an address of
// another interface the kernel may report that interface, hence four checks. The last one is for a pod that connects
// from one of its addresses to another: a spoofed source from outside is useless, since the reply would not reach it.
static __always_inline bool is_from_within(struct bpf_sk_lookup *ctx, const struct address *to)
{
    struct visit visit = {.to = *to, .port = bpf_ntohs(ctx->remote_port), .to_port = ctx->local_port};
    ADDRESS(&visit.from, ctx, remote);
    if (ctx->ingress_ifindex == LOOPBACK_IFINDEX || is_same(to, &visit.from) ||
        bpf_map_lookup_elem(&visits, &visit))
        return true;
    __u64 *here = bpf_map_lookup_elem(&addresses, to);
    return here && is_own(*here, &visit.from);
}

// Link-local addresses are in no table, since every interface generates its own.
static __always_inline bool is_link_local(const struct address *to)
{
    if (is_v4(to))
        return (to->words[3] & bpf_htonl(0xffff0000)) == bpf_htonl(0xa9fe0000);
    return (to->words[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
}

SEC("sk_lookup/arrive")
int arrive(struct bpf_sk_lookup *ctx)
{
    struct address to;
    if (ctx->protocol != IPPROTO_TCP)
        return SK_PASS;
    ADDRESS(&to, ctx, local);
    if (is_from_within(ctx, &to))
        return SK_PASS;
    // This is a pod's namespace. An unknown address was either added a moment ago, and the holder is about to
    // record it; or it cannot be recorded, and then it is not known which rules apply to it.
    __u64 *netns = bpf_map_lookup_elem(&addresses, &to);
    if (!netns)
        return is_link_local(&to) ? SK_PASS : SK_DROP;
    // A released pod keeps its addresses in the table until this program is detached from its namespace.
    struct pod *pod = bpf_map_lookup_elem(&pods, netns);
    if (!pod || is_among(pod->inbound, pod->inbound_ranges, ctx->local_port))
        return SK_PASS;
    if (!is_served(pod))
        return pod->fate == FATE_PASS ? SK_PASS : SK_DROP;
    struct bpf_sock *listener = bpf_map_lookup_elem(&listeners, netns);
    if (!listener)
        return SK_DROP;
    // Another program in the namespace may have chosen a socket before: replace it.
    long failed = bpf_sk_assign(ctx, listener, BPF_SK_LOOKUP_F_REPLACE);
    bpf_sk_release(listener);
    return failed ? SK_DROP : SK_PASS;
}
