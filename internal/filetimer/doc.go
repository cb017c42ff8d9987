// Package filetimer serves the timers that workers set for themselves with torch's FileTimerClient (torch 2.14,
// torch/distributed/elastic/timer/file_based_local_timer.py). A client writes requests into a FIFO: "kill this process
// with this signal unless I release this timer by then". A Server reads them, and says which timers have expired.
//
// The package signals nobody: its caller knows which processes are workers. It knows nothing of rounds and ranks.
//
// A request has a time of the wall clock. The server converts it to a duration when the request arrives, and measures
// the duration with the monotonic clock. So a wall clock that is set forward later ends no worker.
//
// The methods of a Server may be called concurrently.
package filetimer
