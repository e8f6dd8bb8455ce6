-- Returns of each question the first sequence that is meant, and the run's records from there.
-- ARGV, for each: run, first, last, from keyframe.
local EACH, NOTHING, answers = 4, { 0, {} }, {}

local function records(run_id, first, last, is_from_keyframe)
  local f = redis.call('HMGET', row_of(run_id), 'head', 'forked')
  if not f[1] then
    return NOTHING
  end
  local begins = tonumber(f[2] or 0) + 1
  first, last = math.max(first, begins), math.min(last, tonumber(f[1]))
  if is_from_keyframe then
    local key = redis.call('ZREVRANGEBYSCORE', P .. 'keyframes:' .. run_id, last, '-inf', 'LIMIT', 0, 1)[1]
    first = key and tonumber(key) or begins
  end
  if last < first then
    return NOTHING
  end
  return { first, redis.call('LRANGE', P .. 'chain:' .. run_id, first - begins, last - begins) }
end

for at = 2, #ARGV, EACH do
  answers[#answers + 1] = records(ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3] == '1')
end
return answers
