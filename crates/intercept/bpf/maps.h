// The tables. Entries are allocated when they are there, but of hash tables the kernel allocates 16 bytes for each
// entry that there may be: hence no more than a node can need.
#pragma once

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, MAX_PODS);
    __type(key, __u64);
    __type(value, struct pod);
} pods SEC(".maps");

// Apart from `pods`, whose entries are replaced as a whole while connections come and go.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, MAX_PODS);
    __type(key, __u64);
    __type(value, struct pending);
} pendings SEC(".maps");

// Whose an address is: the netns cookie of a pod that is enrolled, or was a moment ago.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 8192);
    __type(key, struct address);
    __type(value, __u64);
} addresses SEC(".maps");

// Inbound listeners, by netns cookie.
struct {
    __uint(type, BPF_MAP_TYPE_SOCKHASH);
    __uint(max_entries, MAX_PODS);
    __type(key, __u64);
    __type(value, __u32);
} listeners SEC(".maps");

// What belongs to the mesh (1) and what does not (0); and per pod what is left alone. The longest prefix wins.
struct {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 65536);
    __type(key, struct network);
    __type(value, __u8);
} networks SEC(".maps");

// One number: pods with another one are not served by any proxy.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} epoch SEC(".maps");

// Rewritten connections between the client's first packet and the listener's socket.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, MAX_ALL_HANDSHAKES);
    __type(key, struct handshake);
    __type(value, struct destination);
} handshakes SEC(".maps");

// One number: how many they are, a little more while one is tried.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} crowd SEC(".maps");

// How often a table had no room for a connection, by `enum full_table`.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, FULL_TABLES);
    __type(key, __u32);
    __type(value, __u64);
} full SEC(".maps");

// Of a client's socket and of the socket that the listener made for it. Goes with the socket.
struct {
    __uint(type, BPF_MAP_TYPE_SK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct destination);
} destinations SEC(".maps");

// Of the proxy, until they are established.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 16384);
    __type(key, struct visit);
    __type(value, __u8);
} visits SEC(".maps");
