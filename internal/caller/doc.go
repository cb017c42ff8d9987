// Package caller serves the program that started this launcher, such as the function launch of the Python package. Two
// variables of the environment ask for it:
//
//	ELASTICRUN_CALLER_PID     stop the job with SIGTERM when the process with this pid, which is the parent, ends
//	ELASTICRUN_CALLER_REPORT  write the report to this file too, whatever --report says, also for bad input
//
// It is not for users: a launch that a person or a script starts has neither. Workers must not inherit them, because a
// launch in a worker has another parent. The functions do not keep state; [Follow] belongs to the main goroutine.
package caller
