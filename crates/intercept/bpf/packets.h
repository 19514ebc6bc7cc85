// Programs for packets, which see what the socket address hooks do not: datagrams that are sent by a socket connected
// earlier, and datagrams that arrive. On kernels with `tcx` (6.6) they are attached to the interfaces of each guarded
// pod, and do not see traffic carried by the mesh, which uses the pod's lo. On older kernels they are attached to the
// pods' cgroup and see every packet of every pod; nearly all are TCP, which passes after a check of one byte.
#pragma once

// Whether this kernel can tell the namespace of a packet's socket (6.15). Set when the programs are loaded. Without
// it, pods are identified by their addresses.
const volatile bool knows_netns = true;

#define HEAD4 20
#define HEAD6 40
#define FRAGMENT_OFFSET 0x1fff

#define DROP 0

// Return values of programs at interfaces: run the next program, or drop the packet.
#define TCX_NEXT -1
#define TCX_DROP 2

#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd

struct packet {
    struct address local;
    struct address remote;
    __u16 local_port; // host order; 0 where there are no ports
    __u16 remote_port;
    __u8 protocol;
};

// A DNS query: pod, name server and source port. Datagrams that match it in the other direction are responses.
struct question {
    __u64 netns;
    struct address server;
    __u32 port; // of the pod
    __u32 reserved;
};

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 1024);
    __type(key, struct question);
    __type(value, __u8);
} questions SEC(".maps");

// The programs that decide while the holder lives.
ALIVE(alive_egress);
ALIVE(alive_ingress);
ALIVE(alive_link_egress);
ALIVE(alive_link_ingress);

// Loads from the network header on: the bytes before it differ from hook to hook.
#define LOAD(skb, at, to, size) bpf_skb_load_bytes_relative(skb, at, to, size, BPF_HDR_START_NET)

// TCP is decided when the connection is made, and ICMP carries no data of programs.
static __always_inline bool is_decided_elsewhere(__u8 protocol)
{
    return protocol == IPPROTO_TCP || protocol == IPPROTO_ICMP || protocol == IPPROTO_ICMPV6;
}

// Fast check for programs at the cgroup, whose packet data begins at the network header.
static __always_inline bool is_left_alone(struct __sk_buff *skb)
{
    __u8 *head = (void *)(long)skb->data;
    if (head + HEAD4 > (__u8 *)(long)skb->data_end)
        return false;
    __u8 protocol = head[0] >> 4 == 4 ? head[9] : head[6];
    return is_decided_elsewhere(protocol);
}

// Offset of the ports, or 0 in a fragment without them.
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
    if (LOAD(skb, 0, &head, HEAD4))
        return false;
    if (head.bytes[0] >> 4 == 4) {
        mapped(&from, head.words[3]);
        mapped(&to, head.words[4]);
        packet->protocol = head.bytes[9];
        at = ports_at4(head.bytes);
    } else {
        if (LOAD(skb, 0, &head, HEAD6))
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
        if (at && LOAD(skb, at, ports, sizeof(ports)))
            return false;
    }
    packet->local = is_leaving ? from : to;
    packet->remote = is_leaving ? to : from;
    packet->local_port = bpf_ntohs(ports[is_leaving ? 0 : 1]);
    packet->remote_port = bpf_ntohs(ports[is_leaving ? 1 : 0]);
    return true;
}

// The pod of a packet. A packet that arrives at an interface has no socket yet, so it is identified by its address.
static __always_inline __u64 netns_of(struct __sk_buff *skb, const struct packet *packet, bool has_socket)
{
    if (knows_netns && has_socket && skb->sk)
        return bpf_get_netns_cookie(skb);
    __u64 *netns = bpf_map_lookup_elem(&addresses, &packet->local);
    return netns ? *netns : 0;
}

// DNS queries pass, and so do their responses. Other datagrams from port 53 are not responses.
static __always_inline bool is_of_name_server(__u64 netns, const struct packet *packet, bool is_leaving)
{
    if (packet->protocol != IPPROTO_UDP || packet->remote_port != DNS_PORT)
        return false;
    struct question question = {.netns = netns, .server = packet->remote, .port = packet->local_port};
    __u8 yes = 1;
    if (is_leaving)
        bpf_map_update_elem(&questions, &question, &yes, BPF_ANY);
    return is_leaving || bpf_map_lookup_elem(&questions, &question);
}

static __always_inline int judge(struct __sk_buff *skb, bool is_leaving, bool is_held, bool is_at_link)
{
    struct packet packet;
    if (!read_packet(skb, is_leaving, &packet))
        return DROP;
    if (is_decided_elsewhere(packet.protocol))
        return ALLOW;
    bool has_socket = is_leaving || !is_at_link;
    __u64 netns = netns_of(skb, &packet, has_socket);
    struct pod *pod = bpf_map_lookup_elem(&pods, &netns);
    if (!pod || is_of_name_server(netns, &packet, is_leaving))
        return ALLOW;
    bool may_pass = is_held ? is_served(pod) || pod->fate == FATE_PASS : !(pod->flags & POD_GUARDED);
    if (may_pass || (has_socket && own_cgroup && bpf_skb_cgroup_id(skb) == own_cgroup))
        return ALLOW;
    // Traffic to and from an excluded inbound port passes.
    if (is_among(pod->inbound, pod->inbound_ranges, packet.local_port))
        return ALLOW;
    return is_concerned(netns, pod, &packet.remote, packet.remote_port) ? DROP : ALLOW;
}

SEC("cgroup_skb/egress")
int egress(struct __sk_buff *skb)
{
    return judge(skb, true, true, false);
}

SEC("cgroup_skb/ingress")
int ingress(struct __sk_buff *skb)
{
    return judge(skb, false, true, false);
}

SEC("cgroup_skb/egress")
int guard_egress(struct __sk_buff *skb)
{
    if (is_left_alone(skb))
        return ALLOW;
    bpf_tail_call(skb, &alive_egress, 0);
    return judge(skb, true, false, false);
}

SEC("cgroup_skb/ingress")
int guard_ingress(struct __sk_buff *skb)
{
    if (is_left_alone(skb))
        return ALLOW;
    bpf_tail_call(skb, &alive_ingress, 0);
    return judge(skb, false, false, false);
}

static __always_inline int at_link(struct __sk_buff *skb, bool is_leaving, bool is_held)
{
    // Neither IPv4 nor IPv6, for example ARP.
    if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
        return TCX_NEXT;
    return judge(skb, is_leaving, is_held, true) == ALLOW ? TCX_NEXT : TCX_DROP;
}

SEC("classifier")
int link_egress(struct __sk_buff *skb)
{
    return at_link(skb, true, true);
}

SEC("classifier")
int link_ingress(struct __sk_buff *skb)
{
    return at_link(skb, false, true);
}

SEC("classifier")
int guard_link_egress(struct __sk_buff *skb)
{
    bpf_tail_call(skb, &alive_link_egress, 0);
    return at_link(skb, true, false);
}

SEC("classifier")
int guard_link_ingress(struct __sk_buff *skb)
{
    bpf_tail_call(skb, &alive_link_ingress, 0);
    return at_link(skb, false, false);
}
