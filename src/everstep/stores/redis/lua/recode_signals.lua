-- Puts other bytes in the place of signals that were not taken, each only where those are that were read.
-- ARGV: run, then of each signal: its number, the old value, the new one.
local n, replaced = redis.call('HGET', row_of(ARGV[2]), 'n'), 0
for k = 3, n and #ARGV or 0, 3 do
  local key = signal_of(n, ARGV[k])
  if redis.call('ZSCORE', inbox_of(n), ARGV[k]) and redis.call('HGET', key, 'value') == ARGV[k + 1] then
    redis.call('HSET', key, 'value', ARGV[k + 2])
    replaced = replaced + 1
  end
end
return replaced
