//! Responses to DNS queries (RFC 1035; negative responses follow RFC 2308).

use std::net::IpAddr;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, SOA};
use hickory_proto::rr::{DNSClass, LowerName, Name, RData, Record, RecordType};

use super::zone::{Known, Zone};

#[cfg(test)]
mod tests;

/// Time to live of records in seconds. Short, since labs come and go and reuse addresses.
const TTL_S: u32 = 5;
/// Limit of a datagram unless the query has a larger EDNS limit (RFC 1035 section 4.2.1).
const SMALL: u16 = 512;
/// Our own limit of a datagram, which avoids fragmentation.
const LARGE: u16 = 1232;

/// Transport of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    Datagrams,
    Connection,
}

/// The response to a message. `None` if it is not a query: a forged query can make a server respond to us, and a
/// reply to that response would loop.
pub(super) fn to(question: &[u8], over: Over, zone: &Zone) -> Option<Vec<u8>> {
    let Ok(question) = Message::from_vec(question) else {
        return malformed(question);
    };
    if question.metadata.message_type != MessageType::Query {
        return None;
    }
    let answer = answer(&question, zone);
    let bytes = answer.to_vec().ok()?;
    let room = match over {
        Over::Connection => u16::MAX,
        Over::Datagrams => question.max_payload().clamp(SMALL, LARGE),
    };
    if bytes.len() <= usize::from(room) {
        return Some(bytes);
    }
    // Truncated: the client repeats the query over TCP.
    answer.truncate().to_vec().ok()
}

/// A message that cannot be parsed gets an error if it has a complete header of a query.
fn malformed(question: &[u8]) -> Option<Vec<u8>> {
    const ANSWER: u8 = 0x80;
    let [first, second, flags, ..] = *question else {
        return None;
    };
    let is_question = question.len() >= 12 && flags & ANSWER == 0;
    let id = u16::from_be_bytes([first, second]);
    let error = Message::error_msg(id, OpCode::Query, ResponseCode::FormErr);
    is_question.then(|| error.to_vec().ok())?
}

fn answer(question: &Message, zone: &Zone) -> Message {
    let asked = &question.metadata;
    let mut answer = Message::response(asked.id, asked.op_code);
    answer.metadata.recursion_desired = asked.recursion_desired;
    answer.add_queries(question.queries.iter().cloned());
    if question.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(LARGE);
        answer.set_edns(edns);
    }
    let (OpCode::Query, [query]) = (asked.op_code, question.queries.as_slice()) else {
        answer.metadata.response_code = ResponseCode::NotImp;
        return answer;
    };
    let name = LowerName::new(query.name());
    let known = match query.query_class() {
        DNSClass::IN => zone.look_up(&name),
        _ => Known::Elsewhere,
    };
    answer.metadata.authoritative = known != Known::Elsewhere;
    match known {
        Known::Elsewhere => answer.metadata.response_code = ResponseCode::Refused,
        Known::Nowhere => answer.metadata.response_code = ResponseCode::NXDomain,
        Known::Here(addresses) => {
            let records = records(query.name(), query.query_type(), addresses);
            answer.add_answers(records);
            if name == LowerName::new(zone.apex()) && query.query_type() == RecordType::SOA {
                answer.add_answer(authority(zone));
            }
        }
    }
    if answer.metadata.authoritative && answer.answers.is_empty() {
        answer.add_authority(authority(zone));
    }
    answer
}

fn records(name: &Name, kind: RecordType, addresses: &[IpAddr]) -> Vec<Record> {
    let wanted = |data: &RData| kind == RecordType::ANY || data.record_type() == kind;
    let all = addresses.iter().map(|address| match address {
        IpAddr::V4(address) => RData::A(A(*address)),
        IpAddr::V6(address) => RData::AAAA(AAAA(*address)),
    });
    all.filter(wanted)
        .map(|data| Record::from_rdata(name.clone(), TTL_S, data))
        .collect()
}

/// The SOA record, which limits how long a negative response is cached.
fn authority(zone: &Zone) -> Record {
    let apex = zone.apex().clone();
    let ttl = i32::try_from(TTL_S).unwrap_or(i32::MAX);
    let soa = SOA::new(apex.clone(), apex.clone(), 1, 3600, 600, ttl, TTL_S);
    Record::from_rdata(apex, TTL_S, RData::SOA(soa))
}
