// How an original destination gets from the client's socket to the one that the listener makes for it: through
// `handshakes`, where it stands from the client's SYN to the listener's last ACK, or the client's end.
#pragma once

#define TCP_CLOSED 7 // TCP_CLOSE of the kernel's states, where BPF calls it BPF_TCP_CLOSE

static __always_inline void local(struct bpf_sock_ops *ctx, struct address *to)
{
    if (ctx->family == AF_INET) {
        mapped(to, ctx->local_ip4);
        return;
    }
    to->words[0] = ctx->local_ip6[0];
    to->words[1] = ctx->local_ip6[1];
    to->words[2] = ctx->local_ip6[2];
    to->words[3] = ctx->local_ip6[3];
}

static __always_inline void remote(struct bpf_sock_ops *ctx, struct address *to)
{
    if (ctx->family == AF_INET) {
        mapped(to, ctx->remote_ip4);
        return;
    }
    to->words[0] = ctx->remote_ip6[0];
    to->words[1] = ctx->remote_ip6[1];
    to->words[2] = ctx->remote_ip6[2];
    to->words[3] = ctx->remote_ip6[3];
}

// Whoever removes an entry counts it, so that none is counted twice.
static __always_inline void forget(struct handshake *key, __u32 pod)
{
    if (bpf_map_delete_elem(&handshakes, key))
        return;
    struct pending *pending = bpf_map_lookup_elem(&pendings, &key->netns);
    if (pending && pending->id == pod)
        __sync_fetch_and_sub(&pending->count, 1);
}

static __always_inline void begin(struct bpf_sock_ops *ctx)
{
    struct bpf_sock *sk = ctx->sk;
    if (!sk)
        return;
    struct destination *destination = bpf_sk_storage_get(&destinations, sk, 0, 0);
    if (!destination)
        return;
    struct handshake key = {.netns = bpf_get_netns_cookie(ctx), .port = ctx->local_port};
    local(ctx, &key.source);
    struct pending *pending = bpf_map_lookup_elem(&pendings, &key.netns);
    // A pod that was released a moment ago is counted no more.
    bool is_counted = pending && pending->id == destination->pod;
    // Without an entry the listener's side finds no destination, and whoever serves it refuses.
    if ((is_counted && __sync_fetch_and_add(&pending->count, 1) >= MAX_HANDSHAKES) ||
        bpf_map_update_elem(&handshakes, &key, destination, BPF_NOEXIST)) {
        if (is_counted)
            __sync_fetch_and_sub(&pending->count, 1);
        return;
    }
    bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
}

static __always_inline void end(struct bpf_sock_ops *ctx)
{
    if (ctx->args[1] != TCP_CLOSED)
        return;
    struct handshake key = {.netns = bpf_get_netns_cookie(ctx), .port = ctx->local_port};
    local(ctx, &key.source);
    struct destination *destination = bpf_map_lookup_elem(&handshakes, &key);
    if (destination)
        forget(&key, destination->pod);
}

// At the pods' cgroup.
SEC("sockops")
int client(struct bpf_sock_ops *ctx)
{
    switch (ctx->op) {
    case BPF_SOCK_OPS_TCP_CONNECT_CB:
        begin(ctx);
        break;
    case BPF_SOCK_OPS_STATE_CB:
        end(ctx);
        break;
    }
    return 1;
}

// At the cgroup of the listeners, which the sockets that they accept inherit.
SEC("sockops")
int server(struct bpf_sock_ops *ctx)
{
    if (ctx->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
        return 1;
    struct address here;
    local(ctx, &here);
    if (!is_loopback(&here))
        return 1;
    struct handshake key = {
        .netns = bpf_get_netns_cookie(ctx),
        .port = bpf_ntohl(ctx->remote_port),
    };
    remote(ctx, &key.source);
    struct destination *destination = bpf_map_lookup_elem(&handshakes, &key);
    if (!destination)
        return 1;
    struct destination original = *destination;
    struct bpf_sock *sk = ctx->sk;
    if (sk)
        bpf_sk_storage_get(&destinations, sk, &original, BPF_SK_STORAGE_GET_F_CREATE);
    forget(&key, original.pod);
    return 1;
}
