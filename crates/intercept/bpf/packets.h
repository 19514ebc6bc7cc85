// Packets, for what the hooks on addresses do not see: what is sent by a socket that was connected before, and what
// arrives for one. Every packet of every pod comes by here, and nearly all are TCP's, so that comes first: for those it
// is over after one look at a byte.
#pragma once

// Whether this kernel tells packets' hooks in which namespace a socket is (6.15). Set when they are loaded.
const volatile bool knows_netns = true;

#define HEAD4 20
#define HEAD6 40
#define FRAGMENT_OFFSET 0x1fff

#define DROP 0

struct packet {
    struct address local;
    struct address remote;
    __u16 local_port; // host order; 0 where there are no ports
    __u16 remote_port;
    __u8 protocol;
};

// Sockets that have asked name servers: what comes from such a server is for them.
struct {
    __uint(type, BPF_MAP_TYPE_SK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, __u8);
} askers SEC(".maps");

// `egress` and `ingress`, which decide while there is a holder.
ALIVE(alive_egress);
ALIVE(alive_ingress);

// Connections are decided on when they are made, and messages about errors tell nobody anything.
static __always_inline bool is_left_alone(struct __sk_buff *skb)
{
    __u8 *head = (void *)(long)skb->data;
    if (head + HEAD4 > (__u8 *)(long)skb->data_end)
        return false;
    __u8 protocol = head[0] >> 4 == 4 ? head[9] : head[6];
    return protocol == IPPROTO_TCP || protocol == IPPROTO_ICMP || protocol == IPPROTO_ICMPV6;
}

// Where ports are, or 0 where there are none.
static __always_inline __u32 ports_at4(const __u8 *head)
{
    return (head[6] << 8 | head[7]) & FRAGMENT_OFFSET ? 0 : (head[0] & 15) * 4;
}

static __always_inline bool read_packet(struct __sk_buff *skb, bool is_leaving, struct packet *packet)
{
    union {
        __u8 bytes[HEAD6];
        __u32 words[HEAD6 / 4];
    } head;
    __u32 at;
    struct address from, to;
    if (bpf_skb_load_bytes(skb, 0, &head, HEAD4))
        return false;
    if (head.bytes[0] >> 4 == 4) {
        mapped(&from, head.words[3]);
        mapped(&to, head.words[4]);
        packet->protocol = head.bytes[9];
        at = ports_at4(head.bytes);
    } else {
        if (bpf_skb_load_bytes(skb, 0, &head, HEAD6))
            return false;
        __builtin_memcpy(&from, &head.words[2], sizeof(from));
        __builtin_memcpy(&to, &head.words[6], sizeof(to));
        packet->protocol = head.bytes[6];
        at = HEAD6;
    }
    __u16 ports[2] = {};
    switch (packet->protocol) {
    case IPPROTO_UDP:
    case IPPROTO_UDPLITE:
    case IPPROTO_SCTP:
    case IPPROTO_DCCP:
        if (at && bpf_skb_load_bytes(skb, at, ports, sizeof(ports)))
            return false;
    }
    packet->local = is_leaving ? from : to;
    packet->remote = is_leaving ? to : from;
    packet->local_port = bpf_ntohs(ports[is_leaving ? 0 : 1]);
    packet->remote_port = bpf_ntohs(ports[is_leaving ? 1 : 0]);
    return true;
}

static __always_inline __u64 netns_of(struct __sk_buff *skb, const struct packet *packet)
{
    if (knows_netns)
        return bpf_get_netns_cookie(skb);
    __u64 *netns = bpf_map_lookup_elem(&addresses, &packet->local);
    return netns ? *netns : 0;
}

// A question to a name server passes, and its answer. Who has not asked is not answered, whatever port that comes from.
static __always_inline bool is_of_name_server(struct __sk_buff *skb, const struct packet *packet, bool is_leaving)
{
    struct bpf_sock *sk = skb->sk;
    if (packet->protocol != IPPROTO_UDP || packet->remote_port != DNS_PORT || !sk)
        return false;
    __u64 flags = is_leaving ? BPF_SK_STORAGE_GET_F_CREATE : 0;
    return bpf_sk_storage_get(&askers, sk, 0, flags) || is_leaving;
}

static __always_inline int judge(struct __sk_buff *skb, bool is_leaving, bool is_held)
{
    struct packet packet;
    if (!read_packet(skb, is_leaving, &packet))
        return DROP;
    __u64 netns = netns_of(skb, &packet);
    struct pod *pod = bpf_map_lookup_elem(&pods, &netns);
    if (!pod || is_of_name_server(skb, &packet, is_leaving))
        return ALLOW;
    bool may_pass = is_held ? is_served(pod) || pod->fate == FATE_PASS : !(pod->flags & POD_GUARDED);
    if (may_pass || (own_cgroup && bpf_skb_cgroup_id(skb) == own_cgroup))
        return ALLOW;
    // What is said to a port that is left alone is answered from there.
    if (is_among(pod->inbound, pod->inbound_ranges, packet.local_port))
        return ALLOW;
    return is_concerned(netns, pod, &packet.remote, packet.remote_port) ? DROP : ALLOW;
}

SEC("cgroup_skb/egress")
int egress(struct __sk_buff *skb)
{
    return judge(skb, true, true);
}

SEC("cgroup_skb/ingress")
int ingress(struct __sk_buff *skb)
{
    return judge(skb, false, true);
}

SEC("cgroup_skb/egress")
int guard_egress(struct __sk_buff *skb)
{
    if (is_left_alone(skb))
        return ALLOW;
    bpf_tail_call(skb, &alive_egress, 0);
    return judge(skb, true, false);
}

SEC("cgroup_skb/ingress")
int guard_ingress(struct __sk_buff *skb)
{
    if (is_left_alone(skb))
        return ALLOW;
    bpf_tail_call(skb, &alive_ingress, 0);
    return judge(skb, false, false);
}
