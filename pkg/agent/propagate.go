package agent

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
)

// recorded is the layout of the error files that torch's @record writes. Whoever started the launcher reads one of these from it.
type recorded struct {
	Message recordedMessage `json:"message"`
}

type recordedMessage struct {
	Message string `json:"message"`
	Extra   struct {
		CallStack string `json:"py_callstack"`
		Timestamp string `json:"timestamp"` // whole Unix seconds
		// These are not torch's: who failed, where that is a worker.
		Host      string `json:"host,omitempty"`
		Rank      *int   `json:"rank,omitempty"`
		LocalRank *int   `json:"local_rank,omitempty"`
	} `json:"extraInfo"`
	ErrorCode int `json:"errorCode,omitempty"` // as Python counts it: -n for signal n
}

// ErrorFileData is the error file with which a launcher passes this root cause on: the worker's own with errorCode added, as
// torchrun does, or, where there is none, one in the same layout from what is known.
func (f Failure) ErrorFileData() ([]byte, error) {
	if f.Error != nil {
		if data, err := withErrorCode(f.Error.Raw, f.Exit.PythonCode()); err == nil {
			return data, nil
		}
	}
	var out recorded
	m := &out.Message
	m.Message, m.ErrorCode = f.Summary(), f.Exit.PythonCode()
	m.Extra.CallStack, m.Extra.Timestamp = traceback(f), strconv.FormatInt(f.Time.Unix(), 10)
	m.Extra.Host, m.Extra.Rank, m.Extra.LocalRank = f.Host, &f.GlobalRank, &f.LocalRank
	return encode(out)
}

// LauncherErrorData is the error file of a launcher that could not go on: name is what kind of error it was, in place of
// the exception's type.
func LauncherErrorData(name, text string, code int, at time.Time) ([]byte, error) {
	var out recorded
	m := &out.Message
	m.Message, m.ErrorCode = name+": "+text, code
	m.Extra.CallStack, m.Extra.Timestamp = text, strconv.FormatInt(at.Unix(), 10)
	return encode(out)
}

// withErrorCode sets message.errorCode in an error file and keeps all else. A message that is a text stays without one, as
// with torchrun.
func withErrorCode(raw string, code int) ([]byte, error) {
	var top, message map[string]json.RawMessage
	if err := json.Unmarshal([]byte(raw), &top); err != nil {
		return nil, err
	}
	if json.Unmarshal(top["message"], &message) == nil && message != nil && code != 0 {
		message["errorCode"] = json.RawMessage(strconv.Itoa(code))
		with, err := encode(message)
		if err != nil {
			return nil, err
		}
		top["message"] = with
	}
	return encode(top)
}

// encode is JSON in one line, without the escapes that are for HTML.
func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte{'\n'}), nil
}
