package login

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"
)

// TokenFromFile returns a Token that reads the file each time. Another program renews the file.
func TokenFromFile(name string) Token {
	return func(context.Context) (string, time.Time, error) {
		data, err := os.ReadFile(name)
		if err != nil {
			return "", time.Time{}, fmt.Errorf("the token's file cannot be read: %w", withoutName(err))
		}
		return strings.TrimSpace(string(data)), time.Time{}, nil
	}
}

// TokenFromCommand returns a Token that runs a program with its arguments, without a shell, and reads
// the token from its output. A token that is a JWT is kept until half of its life is over.
func TokenFromCommand(command []string) Token {
	return func(ctx context.Context) (string, time.Time, error) {
		run := exec.CommandContext(ctx, command[0], command[1:]...)
		run.WaitDelay = time.Second // a child of the program may keep the output open
		out, err := run.Output()
		if ctx.Err() != nil {
			err = fmt.Errorf("it did not end within %v", fetchTimeout)
		}
		if err != nil { // without its output, which may have a token
			return "", time.Time{}, fmt.Errorf("the command for a token failed: %w; run it by hand as this user", withoutName(err))
		}
		token := strings.TrimSpace(string(out))
		return token, endOfJWT(token), nil
	}
}

// withoutName returns the cause of an error about a file or a program, without its name, which may be
// the token itself by mistake.
func withoutName(err error) error {
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		return file.Err
	}
	if program, ok := errors.AsType[*exec.Error](err); ok {
		return program.Err
	}
	return err
}

// endOfJWT returns the end that a JWT states; zero if the token states none. It verifies nothing:
// that is the broker's work.
func endOfJWT(token string) time.Time {
	var claims struct{ Exp float64 }
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil || claims.Exp <= 0 {
		return time.Time{}
	}
	return time.Unix(int64(claims.Exp), 0)
}
