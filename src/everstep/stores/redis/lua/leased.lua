-- Returns the rows of runs whose lease holds.
local rows = {}
for _, run_id in ipairs(redis.call('ZRANGEBYSCORE', P .. 'leases', '(' .. clock(), '+inf')) do
  rows[#rows + 1] = { run_id, redis.call('HGETALL', row_of(run_id)) }
end
return rows
