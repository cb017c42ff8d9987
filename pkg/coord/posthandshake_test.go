package coord

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// recordWriter writes TLS records of any type as a client with a session could.
type recordWriter struct {
	aead   cipher.AEAD
	iv     []byte
	number uint64
}

// newRecordWriter derives the keys of a client's application data from its key log (RFC 8446, section 7.3). sent is how
// many records with these keys the client has sent.
func newRecordWriter(t *testing.T, keyLog string, suite uint16, sent uint64) *recordWriter {
	t.Helper()
	_, rest, ok := strings.Cut(keyLog, "CLIENT_TRAFFIC_SECRET_0 ")
	if !ok || suite != tls.TLS_AES_128_GCM_SHA256 {
		t.Skipf("needs AES in hardware: the cipher suite is %s", tls.CipherSuiteName(suite))
	}
	secret, err := hex.DecodeString(strings.Fields(rest)[1])
	if err != nil {
		t.Fatal(err)
	}
	expand := func(label string, size int) []byte {
		info := append(binary.BigEndian.AppendUint16(nil, uint16(size)), byte(6+len(label)))
		key, err := hkdf.Expand(sha256.New, secret, string(append(append(info, "tls13 "+label...), 0)), size)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	block, err := aes.NewCipher(expand("key", 16))
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	return &recordWriter{aead: aead, iv: expand("iv", 12), number: sent}
}

// record returns a record of a type.
func (w *recordWriter) record(kind byte, data []byte) []byte {
	nonce := bytes.Clone(w.iv)
	for i, b := range binary.BigEndian.AppendUint64(nil, w.number) {
		nonce[4+i] ^= b
	}
	w.number++
	plain := append(bytes.Clone(data), kind)
	head := binary.BigEndian.AppendUint16([]byte{23, 3, 3}, uint16(len(plain)+w.aead.Overhead()))
	return w.aead.Seal(bytes.Clone(head), nonce, plain, head)
}

// TestHandshakeMessageOfASession lets a client with a session begin a TLS handshake message of 250 KiB. crypto/tls
// would keep the received data until the message ends, in addition to the memory that the store counts.
func TestHandshakeMessageOfASession(t *testing.T) {
	s, addr := startServer(t, ServerOptions{})
	keyLog := &bytes.Buffer{}
	a := &attempt{opts: &DialOptions{Addr: addr, RunID: "run", TTL: time.Hour}}
	raw := connect(t, addr)
	config, _ := clientConfig(a.opts)
	config.KeyLogWriter = keyLog
	below := &preambleConn{Conn: raw, unsent: appendPreamble(nil), check: func() (byte, error) {
		if err := a.readPreamble(raw); err != nil {
			return 0, err
		}
		return a.awaitTurn(t.Context(), raw)
	}}
	c := &secureConn{Conn: tls.Client(below, config), nc: raw}
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.handshake(c); err != nil {
		t.Fatal(err)
	}
	records := newRecordWriter(t, keyLog.String(), c.ConnectionState().CipherSuite, 2) // after hello and join
	const certificate, handshake = 11, 22
	part := append([]byte{certificate, 4, 0, 0}, make([]byte, 16<<10-4)...)
	sent := 0
	for ; sent < 16; sent++ {
		if _, err := raw.Write(records.record(handshake, part)); err != nil {
			break // the store has closed the connection
		}
	}
	raw.SetDeadline(time.Now().Add(testTimeout))
	if _, err := io.Copy(io.Discard, raw); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the store waits for more after %d records of the message", sent)
	}
	waitMalformed(t, s, 1, 0)
}
