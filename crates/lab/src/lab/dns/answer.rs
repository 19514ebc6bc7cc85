//! One message of DNS to another (RFC 1035; negative answers as RFC 2308 says).

use std::net::IpAddr;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, SOA};
use hickory_proto::rr::{DNSClass, LowerName, Name, RData, Record, RecordType};

use super::zone::{Known, Zone};

#[cfg(test)]
mod tests;

/// How long an answer may be kept: labs come and go, with the same addresses.
const TTL_S: u32 = 5;
/// What fits into a datagram unless the question says more (RFC 1035 section 4.2.1).
const SMALL: u16 = 512;
/// What is sent in a datagram at most: it is not fragmented on its way.
const LARGE: u16 = 1232;

/// How a question came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    Datagrams,
    Connection,
}

/// The answer to a message; none to what is no question, which may be an answer to a forged one.
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
    // The client asks again over TCP.
    answer.truncate().to_vec().ok()
}

/// What cannot be read gets an error if it has at least the id of a question.
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

/// Says how long it may be kept that there is nothing.
fn authority(zone: &Zone) -> Record {
    let apex = zone.apex().clone();
    let ttl = i32::try_from(TTL_S).unwrap_or(i32::MAX);
    let soa = SOA::new(apex.clone(), apex.clone(), 1, 3600, 600, ttl, TTL_S);
    Record::from_rdata(apex, TTL_S, RData::SOA(soa))
}
