-- Settles what is due of a run, and returns the rows of all its settled waits. ARGV: run.
local status = redis.call('HGET', row_of(ARGV[2]), 'status')
if status and settle_due(ARGV[2], status, clock()) then
  reckon(ARGV[2])
  announce()
end
local rows = {}
for _, wait_id in ipairs(redis.call('ZRANGE', P .. 'waits:unclosed:' .. ARGV[2], 0, -1)) do
  if redis.call('HGET', wait_of(wait_id), 'status') == 'settled' then
    rows[#rows + 1] = redis.call('HGETALL', wait_of(wait_id))
  end
end
return rows
