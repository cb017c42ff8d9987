package agent

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"github.com/elasticrun/elasticrun/pkg/failure"
)

// errorFileJSON is the layout of the error files that torch's @record writes (torch 2.14,
// torch/distributed/elastic/multiprocessing/errors/error_handler.py). The launcher writes one for its parent process.
type errorFileJSON struct {
	Message errorFileMessage `json:"message"`
}

type errorFileMessage struct {
	Message string `json:"message"`
	Extra   struct {
		CallStack string `json:"py_callstack"`
		Timestamp string `json:"timestamp"` // whole Unix seconds
		// torch does not have the fields below: which worker failed, if one did.
		Host      string `json:"host,omitempty"`
		Rank      *int   `json:"rank,omitempty"`
		LocalRank *int   `json:"local_rank,omitempty"`
	} `json:"extraInfo"`
	ErrorCode int `json:"errorCode,omitempty"` // as Python counts it: -n for signal n
}

// ErrorFileData returns the error file with which a launcher passes on the root cause f. It is the worker's own error
// file with errorCode added, as in torchrun, or else a new one in the same layout.
func ErrorFileData(f failure.Failure) ([]byte, error) {
	if f.RawErrorFile != "" {
		if data, err := withErrorCode(f.RawErrorFile, f.PythonCode()); err == nil {
			return data, nil
		}
	}
	var out errorFileJSON
	m := &out.Message
	m.Message, m.ErrorCode = f.Summary, f.PythonCode()
	m.Extra.CallStack, m.Extra.Timestamp = f.Text, strconv.FormatInt(f.Time.Unix(), 10)
	m.Extra.Host, m.Extra.Rank, m.Extra.LocalRank = f.Host, &f.GlobalRank, &f.LocalRank
	return encode(out)
}

// LauncherErrorData returns the error file of a launcher that failed by itself. name is the kind of the error, in place
// of the type of an exception.
func LauncherErrorData(name, text string, code int, at time.Time) ([]byte, error) {
	var out errorFileJSON
	m := &out.Message
	m.Message, m.ErrorCode = name+": "+text, code
	m.Extra.CallStack, m.Extra.Timestamp = text, strconv.FormatInt(at.Unix(), 10)
	return encode(out)
}

// withErrorCode sets message.errorCode in an error file and keeps everything else. A message that is a text gets none,
// as in torchrun.
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

// encode returns v as JSON in one line, without HTML escapes.
func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte{'\n'}), nil
}
