//! Java's HTTP client; Go's client and server, also with cleartext HTTP/2.

use std::fs;
use std::process::{Command, Stdio};

use super::{CLIENTS, stage};
use crate::programs::{are_here, text};
use heddle_skips::skipped;

/// One request with the standard client of Java, which prefers HTTP/2 by default.
const JAVA: &str = r#"
import java.net.URI;
import java.net.http.*;

public class Client {
    public static void main(String[] arguments) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        for (String address : arguments) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(address)).build();
            HttpResponse<String> response = client.send(request, HttpResponse.BodyHandlers.ofString());
            System.out.print(response.statusCode() + " " + response.body());
        }
    }
}
"#;

/// A server that answers with the HTTP version of the request, and a client with a selectable version.
const GO: &str = r#"
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	if os.Args[1] == "serve" {
		http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s, %d bytes\n", r.Proto, len(body))
		})
		fmt.Println(listen(":8080"))
		os.Exit(1)
	}
	client := client(os.Args[1] == "2")
	for i := 0; i < 20; i++ {
		response, err := client.Post(os.Args[2], "text/plain", io.LimitReader(zeros{}, 100000))
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		io.Copy(os.Stdout, response.Body)
		response.Body.Close()
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	return len(p), nil
}
"#;

/// Cleartext HTTP/2, which Go's own library has had since 1.24.
const GO_TWO: &str = r#"
//go:build go1.24

package main

import "net/http"

func both() *http.Protocols {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return protocols
}

func listen(address string) error {
	server := http.Server{Addr: address, Protocols: both()}
	return server.ListenAndServe()
}

func client(two bool) *http.Client {
	protocols := both()
	protocols.SetHTTP1(!two)
	protocols.SetUnencryptedHTTP2(two)
	return &http.Client{Transport: &http.Transport{Protocols: protocols}}
}
"#;

const GO_ONE: &str = r#"
//go:build !go1.24

package main

import "net/http"

func listen(address string) error {
	return http.ListenAndServe(address, nil)
}

func client(two bool) *http.Client {
	if two {
		panic("this Go has no HTTP/2 in the clear")
	}
	return &http.Client{}
}
"#;

#[test]
fn go_speaks_http_1_and_2_with_go_and_java_joins_in() {
    if !are_here(&["go"]) {
        return;
    }
    let Some(stage) = stage() else { return };
    // Given a server in Go …
    let folder = stage.folder().join("go");
    fs::create_dir(&folder).expect("a folder");
    for (file, source) in [("main.go", GO), ("two.go", GO_TWO), ("one.go", GO_ONE)] {
        fs::write(folder.join(file), source).expect("source");
    }
    fs::write(folder.join("go.mod"), "module talk\n\ngo 1.19\n").expect("a module");
    let program = text(&folder.join("talk"));
    // With Go's default cache, so that the library is compiled once.
    let mut build = Command::new("go");
    build
        .args(["build", "-o", &program, "."])
        .current_dir(&folder);
    build
        .env("GOTOOLCHAIN", "local")
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-mod=mod");
    let built = build.stdin(Stdio::null()).output().expect("go runs");
    assert!(
        built.status.success(),
        "go build: {}",
        String::from_utf8_lossy(&built.stderr)
    );
    let _server = stage.serve("go", 8080, &[&program, "serve"]);
    let has_two = has_http_2();
    for client in CLIENTS {
        // … when clients call it with either version of HTTP, then it is called with the same version.
        for version in ["1", "2"] {
            if version == "2" && !has_two {
                skipped("HTTP/2 in the clear by Go, which takes Go 1.24");
                continue;
            }
            stage.is_carried(client, "go", || {
                let said = stage.says(client, &[&program, version, "http://go:8080/"]);
                let proto = if version == "1" {
                    "HTTP/1.1"
                } else {
                    "HTTP/2.0"
                };
                let expected = format!("{proto}, 100000 bytes\n").repeat(20);
                assert_eq!(said, expected, "{client}");
            });
        }
    }
    // A client in Java offers an upgrade to HTTP/2, and accepts the answer in HTTP/1.1.
    if !are_here(&["java", "javac"]) {
        return;
    }
    let source = stage.folder().join("Client.java");
    fs::write(&source, JAVA).expect("source");
    let classes = text(stage.folder());
    stage.says("go", &["javac", "-d", &classes, &text(&source)]);
    for client in CLIENTS {
        stage.is_carried(client, "go", || {
            let page = "http://go:8080/";
            let argv = [
                "java",
                "-Xshare:auto",
                "-cp",
                &classes,
                "Client",
                page,
                page,
            ];
            let said = stage.says(client, &argv);
            assert_eq!(said.matches("200 HTTP/").count(), 2, "{client}: {said}");
        });
    }
}

/// Whether Go's library has cleartext HTTP/2.
fn has_http_2() -> bool {
    let version = Command::new("go").args(["env", "GOVERSION"]).output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let version = version.unwrap_or_default();
    let mut numbers = version.trim().trim_start_matches("go").split('.');
    let mut number = || numbers.next()?.parse::<u32>().ok();
    matches!((number(), number()), (Some(1), Some(24..)) | (Some(2..), _))
}
